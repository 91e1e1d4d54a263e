#pragma once

#include <weft/command.h>
#include <weft/contract.h>
#include <weft/kernel.h>
#include <weft/late.h>
#include <weft/region.h>
#include <weft/scalar.h>
#include <weft/tensor.h>

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace weft {

/// A pointer parameter that the kernel only reads.
template <Element T>
struct In {};
/// A pointer parameter whose elements the kernel writes without reading them first.
template <Element T>
struct Out {};
/// A pointer parameter that the kernel reads and writes.
template <Element T>
struct InOut {};

namespace detail {

template <class P>
struct ParameterOf {
  static_assert(ScalarValue<P>, "A kernel parameter is In<T>, Out<T>, InOut<T> or a scalar type.");
  static constexpr bool is_binding = false;
  static Parameter make(std::string name) {
    return {.kind = ParameterKind::scalar, .size = sizeof(P), .name = std::move(name)};
  }
};

template <class T, Access A>
struct BindingParameter {
  using Value = T;
  static constexpr bool is_binding = true;
  static Parameter make(std::string name) {
    return {.kind = ParameterKind::binding,
            .size = sizeof(void*),
            .access = A,
            .element_size = sizeof(T),
            .name = std::move(name)};
  }
};
template <class T>
struct ParameterOf<In<T>> : BindingParameter<T, Access::read> {};
template <class T>
struct ParameterOf<Out<T>> : BindingParameter<T, Access::write> {};
template <class T>
struct ParameterOf<InOut<T>> : BindingParameter<T, Access::read_write> {};

template <class A, class P, bool IsBinding = ParameterOf<P>::is_binding>
struct FitsImpl : std::bool_constant<std::same_as<std::remove_cvref_t<A>, P> ||
                                     std::same_as<std::remove_cvref_t<A>, LateScalar<P>>> {};

// A region of the right element type fits by conversion; a Region or a Binding carries no type and is checked at run
// time.
template <class A, class P>
struct FitsImpl<A, P, true> : std::bool_constant<std::convertible_to<A, TypedRegion<typename ParameterOf<P>::Value>> ||
                                                 std::same_as<std::remove_cvref_t<A>, Region> ||
                                                 std::same_as<std::remove_cvref_t<A>, Binding>> {};

}  // namespace detail

/// Whether a call's argument of type A may stand for a kernel parameter P. A scalar, late or not, fits its exact type
/// only: a conversion would take 2^33 or -1 for a uint32_t without a warning.
template <class A, class P>
concept Fits = detail::FitsImpl<A, P>::value;

/// The parameter list of a signature, with a name for each position: `parameters<In<float>, std::uint32_t>({"x",
/// "count"})`.
template <class... P, std::size_t N>
requires(N == sizeof...(P)) [[nodiscard]] std::vector<Parameter> parameters(const char* const (&names)[N]) {
  std::size_t next = 0;
  return {detail::ParameterOf<P>::make(names[next++])...};
}

/// A kernel's spec together with its signature. `make` builds the spec; it is called once a load.
template <class... P>
struct TypedKernelSpec {
  KernelSpec (*make)();
};

/// A loaded kernel that knows its signature: calls with another number of arguments or another width do not compile.
/// A plain handle like KernelId, into which it converts.
template <class... P>
class Kernel {
 public:
  explicit Kernel(KernelId id) noexcept : id_(id) {}

  /// A command that launches the kernel; nothing runs here.
  template <class... A>
  requires(sizeof...(A) == sizeof...(P) && (Fits<A, P> && ...)) [[nodiscard]] Command operator()(
      std::variant<Grid, Workload> shape, A&&... arguments) const {
    return dispatch(id_, std::move(shape), {Argument(std::forward<A>(arguments))...});
  }

  [[nodiscard]] KernelId id() const noexcept { return id_; }
  operator KernelId() const noexcept { return id_; }

 private:
  KernelId id_;
};

}  // namespace weft
