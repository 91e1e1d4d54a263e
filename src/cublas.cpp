#include "../kernels/linear_problem.h"
#include "error_context.h"
#include "overlap.h"
#include "refusal.h"
#include <weft/captured.h>
#include <weft/cublas.h>
#include <weft/error.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <spdlog/fmt/fmt.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weft::cublas {

namespace {

ErrorCode code_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return ErrorCode::out_of_memory;
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return ErrorCode::unsupported;
    default:
      return ErrorCode::internal;
  }
}

void check(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(code_of(status), fmt::format("{} reports {}.", call, cublasLtGetStatusName(status)));
}

int current_device() {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) return device;
  throw Error(ErrorCode::internal, fmt::format("cudaGetDevice reports {}.", cudaGetErrorName(error)));
}

/// The driver of a process is not its child's: a forked one leaves the handle as it is.
struct HandleDeleter {
  pid_t owner = ::getpid();
  void operator()(cublasLtContext* handle) const noexcept {
    if (::getpid() == owner) static_cast<void>(cublasLtDestroy(handle));
  }
};

}  // namespace

/// A handle a device, for a handle of cuBLASLt is one of the device that is current when it is made.
class Library::State {
 public:
  /// Of the current device. Makes it where there is none, which must not happen under a capture.
  cublasLtHandle_t handle() {
    const int device = current_device();
    const std::lock_guard lock(mutex_);
    auto& handle = handles_[device];
    if (handle == nullptr) {
      cublasLtHandle_t made = nullptr;
      check(cublasLtCreate(&made), "cublasLtCreate");
      handle.reset(made);
    }
    return handle.get();
  }

 private:
  std::mutex mutex_;
  std::map<int, std::unique_ptr<cublasLtContext, HandleDeleter>> handles_;
};

class LibraryAccess {
 public:
  static const std::shared_ptr<Library::State>& state(const Library& library) noexcept { return library.state_; }
};

Library::Library() : state_(std::make_shared<State>()) {}

namespace {

/// The alignment that is asked for at most: the widest access of a thread. More chooses no better, and would let the
/// choice depend on where a slot's memory happens to be.
constexpr std::uint64_t kBestAlignment = 16;

/// Of all of these addresses or offsets.
template <class... Values>
std::uint64_t common_alignment(Values... values) {
  return std::uint64_t{1} << std::countr_zero((kBestAlignment | ... | values));
}

cudaDataType_t cuda_type(DType dtype) {
  return dtype == DType::f32 ? CUDA_R_32F : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_16BF;
}

struct Operands {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* b = nullptr;  ///< Null without a bias.
  void* y = nullptr;
};

Operands operands_of(const CapturedCall& call) {
  const bool biased = call.bindings.size() == 4;
  return {call.bindings[0], call.bindings[1], biased ? call.bindings[2] : nullptr, call.bindings.back()};
}

std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

/// What cuBLASLt is told of a product, without an allocation. It takes columns for rows: a row-major matrix is its
/// transpose to it, so that y^T [out, rows] = w x^T is asked for, where w comes as the transpose of w^T [in, out], x^T
/// is [in, rows], and the bias goes down the columns of y^T.
class Description {
 public:
  Description(const LinearShape& shape, bool biased) {
    const cudaDataType_t type = cuda_type(shape.dtype);
    const auto compute =
        shape.dtype == DType::f32 && shape.allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(cublasLtMatmulDescInit(&product, compute, CUDA_R_32F), "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (biased) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    lay_out(w, type, shape.in, shape.out);
    lay_out(x, type, shape.in, shape.rows);
    lay_out(y, type, shape.out, shape.rows);
  }

  void set_bias(const void* bias) { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }

  cublasLtMatmulDescOpaque_t product{};
  cublasLtMatrixLayoutOpaque_t w{};
  cublasLtMatrixLayoutOpaque_t x{};
  cublasLtMatrixLayoutOpaque_t y{};

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check(cublasLtMatmulDescSetAttribute(&product, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  }

  static void lay_out(cublasLtMatrixLayoutOpaque_t& matrix, cudaDataType_t type, std::uint64_t rows,
                      std::uint64_t columns) {
    check(cublasLtMatrixLayoutInit(&matrix, type, rows, columns, static_cast<std::int64_t>(rows)),
          "cublasLtMatrixLayoutInit");
  }
};

cublasLtMatmulPreferenceOpaque_t preference_of(std::uint64_t workspace_bytes, std::uint64_t alignment) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  // The others round the parts of a split sum to the type of y.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(attribute, static_cast<std::uint32_t>(alignment));
  }
  return preference;
}

/// One command's product, and the algorithms chosen for it. Shared by all that prepare the command. Thread-safe.
class Product {
 public:
  Product(std::shared_ptr<Library::State> library, LinearShape shape, bool biased, std::uint64_t alignment)
      : library_(std::move(library)), shape_(std::move(shape)), biased_(biased), alignment_(alignment) {}

  /// Chooses for the current device and the alignment that the regions' offsets promise.
  void load() { static_cast<void>(algorithm(library_->handle(), alignment_)); }

  void enqueue(const CapturedCall& call) {
    const Operands operands = operands_of(call);
    const cublasLtHandle_t handle = library_->handle();
    // Memory that another library brings may be aligned to less than its offset says. The heuristic touches no stream.
    const cublasLtMatmulAlgo_t chosen = algorithm(
        handle, common_alignment(address(operands.x), address(operands.w), address(operands.b), address(operands.y)));
    Description description(shape_, biased_);
    if (biased_) description.set_bias(operands.b);
    const float alpha = 1;
    const float beta = 0;
    check(cublasLtMatmul(handle, &description.product, &alpha, operands.w, &description.w, operands.x, &description.x,
                         &beta, operands.y, &description.y, operands.y, &description.y, &chosen, call.workspace,
                         call.workspace_bytes, call.stream),
          "cublasLtMatmul");
  }

  void run_on_host(const CapturedCall& call) const {
    switch (shape_.dtype) {
      case DType::f16:
        return solve<f16>(operands_of(call));
      case DType::bf16:
        return solve<bf16>(operands_of(call));
      default:
        return solve<float>(operands_of(call));
    }
  }

 private:
  /// Of a device, by its handle, and of an alignment.
  using Key = std::pair<cublasLtHandle_t, std::uint64_t>;

  cublasLtMatmulAlgo_t algorithm(cublasLtHandle_t handle, std::uint64_t alignment) {
    const std::lock_guard lock(mutex_);
    const Key key{handle, alignment};
    const auto known = algorithms_.find(key);
    return known != algorithms_.end() ? known->second : algorithms_.emplace(key, ask(handle, alignment)).first->second;
  }

  cublasLtMatmulAlgo_t ask(cublasLtHandle_t handle, std::uint64_t alignment) const {
    Description description(shape_, biased_);
    // Stands for a bias of this alignment: the heuristic looks at nothing else of it.
    if (biased_) description.set_bias(reinterpret_cast<const void*>(static_cast<std::uintptr_t>(alignment)));
    cublasLtMatmulPreferenceOpaque_t preference = preference_of(shape_.workspace_bytes, alignment);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle, &description.product, &description.w, &description.x, &description.y,
                                         &description.y, &preference, 1, &result, &found),
          "cublasLtMatmulAlgoGetHeuristic");
    check(found == 1 ? result.state : CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic");
    return result.algo;
  }

  template <class T>
  void solve(const Operands& operands) const {
    kernels::LinearProblem<T>{.x = static_cast<const T*>(operands.x),
                              .w = static_cast<const T*>(operands.w),
                              .b = static_cast<const T*>(operands.b),
                              .y = static_cast<T*>(operands.y),
                              .rows = shape_.rows,
                              .in = shape_.in,
                              .out = shape_.out}
        .solve();
  }

  const std::shared_ptr<Library::State> library_;
  const LinearShape shape_;
  const bool biased_;
  const std::uint64_t alignment_;
  std::mutex mutex_;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

std::string describe(const LinearShape& shape) {
  return shape.label.empty() ? "The linear layer" : fmt::format("The linear layer \"{}\"", shape.label);
}

void require_matrix(const LinearShape& shape, std::string_view name, const Region& region, Shape dimensions) {
  const TensorDesc desc =
      in_context([&] { return fmt::format("describing {} of the linear layer \"{}\"", name, shape.label); },
                 [&] { return TensorDesc(shape.dtype, std::move(dimensions)); });
  if (region.bytes != desc.bytes()) {
    refuse(fmt::format("{} takes {} of {} bytes, {}, and is given {}.", describe(shape), name, desc.bytes(),
                       to_string(desc), region.bytes));
  }
  if (region.offset % size_of(shape.dtype) != 0) {
    refuse(fmt::format("{} is given {} at byte {} of its allocation, which is within an element of {}.",
                       describe(shape), name, region.offset, to_string(shape.dtype)));
  }
}

void require_apart(const LinearShape& shape, std::string_view name, const Region& region, const Region& y) {
  const bool same = region.session == y.session && region.allocation == y.allocation;
  if (same && overlap(region.offset, region.bytes, y.offset, y.bytes))
    refuse(fmt::format("{} is given y on top of {}, which it reads.", describe(shape), name));
}

void require_shape(const LinearShape& shape) {
  if (shape.dtype != DType::f32 && shape.dtype != DType::f16 && shape.dtype != DType::bf16) {
    refuse(fmt::format("{} is of {}; cuBLASLt's are of f32, f16 and bf16.", describe(shape), to_string(shape.dtype)));
  }
  const std::pair<std::string_view, std::uint64_t> sizes[] = {
      {"rows", shape.rows}, {"in", shape.in}, {"out", shape.out}};
  for (const auto& [name, size] : sizes) {
    if (size == 0) refuse(fmt::format("{} has 0 {}.", describe(shape), name));
  }
}

/// Two calls that are the same work have the same.
std::string identity_of(const LinearShape& shape, bool biased) {
  return fmt::format("weft::cublas::linear {} [{},{},{}] {}{} {}", to_string(shape.dtype), shape.rows, shape.in,
                     shape.out, biased ? "biased" : "unbiased", shape.allow_tf32 ? " tf32" : "", shape.workspace_bytes);
}

Command make_linear(const Library& library, const LinearShape& shape, const Region& x, const Region& w, const Region* b,
                    const Region& y) {
  require_shape(shape);
  require_matrix(shape, "x", x, {shape.rows, shape.in});
  require_matrix(shape, "w", w, {shape.out, shape.in});
  if (b != nullptr) require_matrix(shape, "b", *b, {shape.out});
  require_matrix(shape, "y", y, {shape.rows, shape.out});

  require_apart(shape, "x", x, y);
  require_apart(shape, "w", w, y);
  if (b != nullptr) require_apart(shape, "b", *b, y);

  std::vector<Binding> bindings{x.read(), w.read()};
  if (b != nullptr) bindings.push_back(b->read());
  bindings.push_back(y.write());

  const std::uint64_t alignment = common_alignment(x.offset, w.offset, b == nullptr ? 0 : b->offset, y.offset);
  const auto product = std::make_shared<Product>(LibraryAccess::state(library), shape, b != nullptr, alignment);
  Captured call;
  call.name = "cublasLtMatmul";
  call.bindings = std::move(bindings);
  call.workspace_bytes = shape.workspace_bytes;
  call.identity = identity_of(shape, b != nullptr);
  call.enqueue = [product](const CapturedCall& slot) { product->enqueue(slot); };
  call.load = [product] { product->load(); };
  call.host = [product](const CapturedCall& slot) { product->run_on_host(slot); };
  return Command(std::move(call)).label(shape.label);
}

}  // namespace

Command linear(const Library& library, const LinearShape& shape, const Region& x, const Region& w, const Region& y) {
  return make_linear(library, shape, x, w, nullptr, y);
}

Command linear(const Library& library, const LinearShape& shape, const Region& x, const Region& w, const Region& b,
               const Region& y) {
  return make_linear(library, shape, x, w, &b, y);
}

}  // namespace weft::cublas
