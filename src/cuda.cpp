#include "error_context.h"
#include "refusal.h"
#include <weft/cuda.h>

#include <spdlog/fmt/fmt.h>

#include <string>
#include <utility>

namespace weft::detail {

namespace {

std::string describe(const Parameter& parameter, std::size_t index) {
  return parameter.name.empty() ? fmt::format("parameter {}", index)
                                : fmt::format("parameter {} (\"{}\")", index, parameter.name);
}

std::string_view kind_of(const DeclaredParameter& declared) {
  if (declared.kind == ParameterKind::binding) return declared.points_to_const ? "a pointer to const" : "a pointer";
  return declared.kind == ParameterKind::bytes ? "a struct" : declared.integral ? "an integer" : "a scalar";
}

bool agrees(ParameterKind kind, const DeclaredParameter& declared) {
  return kind == declared.kind || (kind == ParameterKind::index && declared.integral);
}

void require_agreement(const Parameter& parameter, const DeclaredParameter& declared, std::size_t index) {
  if (!agrees(parameter.kind, declared)) {
    refuse(fmt::format("The spec makes {} of kind {}; the function declares {} there.", describe(parameter, index),
                       to_string(parameter.kind), kind_of(declared)));
  }
  if (parameter.size != 0 && parameter.size != declared.size) {
    refuse(fmt::format("The spec gives {} {} bytes; the function declares {}.", describe(parameter, index),
                       parameter.size, declared.size));
  }
  if (declared.points_to_const && writes(parameter.access)) {
    refuse(fmt::format("The spec gives {} the access {}; the function declares a pointer to const there.",
                       describe(parameter, index), to_string(parameter.access)));
  }
}

/// What the declaration says and the parameter leaves open.
void fill_in(Parameter& parameter, const DeclaredParameter& declared) {
  parameter.size = declared.size;
  const Parameter unsaid;
  if (parameter.element_size != unsaid.element_size || parameter.alignment != unsaid.alignment) return;
  parameter.element_size = declared.element_size;
  // An element's own alignment; by default it would be its size.
  if (declared.element_alignment != declared.element_size) parameter.alignment = declared.element_alignment;
}

Parameter derived(const DeclaredParameter& declared) {
  Parameter parameter{.kind = declared.kind};
  if (declared.kind == ParameterKind::binding && !declared.points_to_const) parameter.access = Access::read_write;
  fill_in(parameter, declared);
  return parameter;
}

}  // namespace

KernelSpec complete_spec(KernelSpec spec, NativeKernel native, const std::vector<DeclaredParameter>& declared) {
  return in_context([&] { return fmt::format("describing the kernel function \"{}\"", spec.name()); },
                    [&] {
                      if (native.function == nullptr) refuse("The function is null.");
                      if (spec.name().empty()) refuse("The spec has neither a label nor a symbol.");
                      if (!spec.image.bytes.empty() || spec.image.native.function != nullptr)
                        refuse(fmt::format("The spec has the image \"{}\" already.", spec.image.label));
                      if (spec.parameters.empty()) {
                        for (const DeclaredParameter& parameter : declared)
                          spec.parameters.push_back(derived(parameter));
                      }
                      if (spec.parameters.size() != declared.size()) {
                        refuse(fmt::format("The spec has {} parameters; the function declares {}.",
                                           spec.parameters.size(), declared.size()));
                      }
                      for (std::size_t i = 0; i < declared.size(); ++i) {
                        require_agreement(spec.parameters[i], declared[i], i);
                        fill_in(spec.parameters[i], declared[i]);
                      }
                      if (spec.host && spec.host->parameter_sizes.empty()) {
                        for (const DeclaredParameter& parameter : declared)
                          spec.host->parameter_sizes.push_back(parameter.size);
                      }
                      spec.image = {.bytes = {}, .label = "the program", .native = native};
                      return spec;
                    });
}

}  // namespace weft::detail
