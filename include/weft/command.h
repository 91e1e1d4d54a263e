#pragma once

#include <weft/captured.h>
#include <weft/export.h>
#include <weft/kernel.h>
#include <weft/late.h>
#include <weft/region.h>
#include <weft/scalar.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace weft {

/// A whole number that can stand for a count. A negative one is refused with `invalid` when the program runs.
template <class T>
concept CountValue = std::integral<T> && !std::same_as<T, bool>;

namespace detail {

[[noreturn]] WEFT_API void refuse_negative_count(std::int64_t value);

// Plain conversion would make 2^64 - 1 of -1, which is a legal count.
template <CountValue T>
[[nodiscard]] constexpr std::uint64_t count(T value) {
  if constexpr (std::signed_integral<T>) {
    if (value < 0) refuse_negative_count(value);
  }
  return static_cast<std::uint64_t>(value);
}

}  // namespace detail

/// An unsigned count that takes the width of its parameter. See `index`.
struct Index {
  std::uint64_t value = 0;
};

/// Consecutive counts, each in its parameter's width. See `indices`.
struct Indices {
  std::vector<std::uint64_t> values;
};

/// Consecutive scalars, each with an explicit width. `Constants().add(3u).add(1.5f)`; see `packed`.
struct Constants {
  std::vector<Scalar> scalars;

  template <ScalarValue T>
  Constants& add(T value) & {
    scalars.emplace_back(value);
    return *this;
  }
  template <ScalarValue T>
  Constants&& add(T value) && {
    scalars.emplace_back(value);
    return std::move(*this);
  }
};

/// A device pointer inside a struct that is passed by value.
struct PointerAt {
  std::uint64_t offset = 0;  ///< Bytes from the start of the struct; a multiple of 8.
  Binding binding = {};      ///< Must say its access: no spec describes the inside of a struct.
};

/// A struct passed by value. See `bytes`.
struct Bytes {
  std::vector<std::byte> value = {};
  std::vector<PointerAt> pointers = {};
};

/// What fills one or more positions of a kernel's parameter list.
struct Argument {
  std::variant<Binding, Scalar, Index, Indices, Constants, Bytes, LateScalarId> value;

  Argument(Binding binding) : value(std::move(binding)) {}
  Argument(const Region& region) : value(Binding{region, {}}) {}
  template <ScalarValue T>
  Argument(T scalar) : value(Scalar(scalar)) {}
  Argument(Index index) : value(index) {}
  Argument(Indices indices) : value(std::move(indices)) {}
  Argument(Constants constants) : value(std::move(constants)) {}
  Argument(Bytes bytes) : value(std::move(bytes)) {}
  Argument(LateScalarId scalar) : value(scalar) {}
};

/// A count in the width that the kernel was compiled with.
template <CountValue T>
[[nodiscard]] Index index(T value) {
  return {detail::count(value)};
}

/// Fills the next consecutive scalar and index parameters, each in its own width.
[[nodiscard]] inline Indices indices(std::vector<std::uint64_t> values) noexcept { return {std::move(values)}; }

/// Fills the next consecutive scalar parameters; each width must match exactly.
[[nodiscard]] inline Constants packed(Constants constants) noexcept { return constants; }

/// A struct passed by value, with regions' addresses written at the given offsets.
template <class T>
requires(std::is_class_v<T>&& std::is_trivially_copyable_v<T> && !std::derived_from<T, Region>) [[nodiscard]] Bytes
    bytes(const T& pod, std::vector<PointerAt> pointers = {}) {
  Bytes result{std::vector<std::byte>(sizeof(T)), std::move(pointers)};
  std::memcpy(result.value.data(), &pod, sizeof(T));
  return result;
}

/// Sizes of the problem, from which the kernel's launch rule computes grid and shared memory.
struct Workload {
  std::vector<std::uint64_t> words;
};

/// `weft::workload(32, 128)`.
template <CountValue... Words>
[[nodiscard]] Workload workload(Words... words) {
  return {{detail::count(words)...}};
}

/// Sets every byte of a region to one value.
struct Fill {
  Region region = {};
  std::uint8_t value = 0;
};

/// Launches a kernel once.
struct Dispatch {
  KernelId kernel = {};
  std::variant<Grid, Workload> shape = {};
  std::vector<Argument> arguments = {};  ///< In the kernel's own parameter order, bindings and scalars mixed.
};

/// One step of a model: what it does, a label, and commands that it must follow beyond what its bytes say.
class Command {
 public:
  Command(Fill fill) : action_(fill) {}
  Command(Dispatch dispatch) : action_(std::move(dispatch)) {}
  Command(Captured captured) : action_(std::move(captured)) {}

  /// Names the command in messages and in the topology.
  Command& label(std::string text) & {
    label_ = std::move(text);
    return *this;
  }
  Command&& label(std::string text) && { return std::move(label(std::move(text))); }

  /// States that this command follows the commands at `positions` of the same list, all earlier than its own.
  Command& after(std::vector<std::uint32_t> positions) & {
    after_ = std::move(positions);
    return *this;
  }
  Command&& after(std::vector<std::uint32_t> positions) && { return std::move(after(std::move(positions))); }

  [[nodiscard]] const std::variant<Fill, Dispatch, Captured>& action() const noexcept { return action_; }
  [[nodiscard]] const std::string& label() const noexcept { return label_; }
  [[nodiscard]] const std::vector<std::uint32_t>& after() const noexcept { return after_; }

 private:
  std::variant<Fill, Dispatch, Captured> action_;
  std::string label_;
  std::vector<std::uint32_t> after_;
};

/// `weft::fill(region, 0)`.
[[nodiscard]] inline Command fill(const Region& region, std::uint8_t value) { return Fill{region, value}; }

/// Launches any loaded kernel; arity, widths and access are checked when the fragment is made.
[[nodiscard]] inline Command dispatch(KernelId kernel, std::variant<Grid, Workload> shape,
                                      std::vector<Argument> arguments) {
  return Dispatch{kernel, std::move(shape), std::move(arguments)};
}

}  // namespace weft
