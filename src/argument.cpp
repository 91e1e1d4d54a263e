#include "argument.h"

#include "overloaded.h"
#include "refusal.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace weft {

namespace {

/// One argument for one parameter: `indices` and `packed` taken apart.
using Part = std::variant<const Binding*, const Scalar*, const Bytes*, Index, LateScalarId>;

std::vector<Part> flatten(std::span<const Argument> arguments) {
  std::vector<Part> parts;
  for (const Argument& argument : arguments) {
    std::visit(Overloaded{[&](const Binding& binding) { parts.emplace_back(&binding); },
                          [&](const Scalar& scalar) { parts.emplace_back(&scalar); },
                          [&](const Bytes& bytes) { parts.emplace_back(&bytes); },
                          [&](Index index) { parts.emplace_back(index); },
                          [&](LateScalarId scalar) { parts.emplace_back(scalar); },
                          [&](const Indices& indices) {
                            for (const std::uint64_t value : indices.values) parts.emplace_back(Index{value});
                          },
                          [&](const Constants& constants) {
                            for (const Scalar& scalar : constants.scalars) parts.emplace_back(&scalar);
                          }},
               argument.value);
  }
  return parts;
}

std::string describe(const Parameter& parameter, std::size_t position) {
  return parameter.name.empty() ? fmt::format("argument {}", position)
                                : fmt::format("argument {} (\"{}\")", position, parameter.name);
}

std::string describe_pointer(std::uint64_t offset, const Parameter& parameter, std::size_t position) {
  return fmt::format("pointer at byte {} of {}", offset, describe(parameter, position));
}

std::string_view kind_name(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::binding:
      return "a region";
    case ParameterKind::scalar:
      return "a scalar";
    case ParameterKind::index:
      return "an index";
    case ParameterKind::bytes:
      return "a struct passed by value";
  }
  return "unknown";
}

ParameterKind kind_of(const Part& part) {
  return std::visit(
      Overloaded{[](const Binding*) { return ParameterKind::binding; },
                 [](const Scalar*) { return ParameterKind::scalar; }, [](const Bytes*) { return ParameterKind::bytes; },
                 [](Index) { return ParameterKind::index; }, [](LateScalarId) { return ParameterKind::scalar; }},
      part);
}

// A scalar may stand for an index parameter and an index for a scalar one: both are widths of plain bits.
bool fits(ParameterKind parameter, ParameterKind argument) {
  const auto is_plain = [](ParameterKind kind) {
    return kind == ParameterKind::scalar || kind == ParameterKind::index;
  };
  return parameter == argument || (is_plain(parameter) && is_plain(argument));
}

class Binder {
 public:
  Binder(const LoadedKernel& kernel, LateScalars late) : kernel_(kernel), late_(late) {
    bound_.parameters.resize(kernel.compiled.parameter_bytes());
  }

  BoundArguments bind(const std::vector<Part>& parts) {
    const std::vector<Parameter>& parameters = kernel_.spec.parameters;
    for (std::size_t i = 0; i < parts.size(); ++i) require_access(parameters[i], parts[i], i);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      require_width(parameters[i], parts[i], i);
      require_no_address(parameters[i], parts[i], i);
    }
    for (std::size_t i = 0; i < parts.size(); ++i) require_alignment(parameters[i], parts[i], i);
    for (std::size_t i = 0; i < parts.size(); ++i) place(i, parts[i], kernel_.compiled.parameters[i].offset);
    return std::move(bound_);
  }

 private:
  static void require_access(const Parameter& parameter, const Part& part, std::size_t i) {
    if (const auto* binding = std::get_if<const Binding*>(&part); binding != nullptr) {
      const std::optional<Access>& said = (*binding)->access;
      if (said && *said != parameter.access) {
        refuse(fmt::format("The {} is bound as {}; the kernel's spec says {}.", describe(parameter, i),
                           to_string(*said), to_string(parameter.access)));
      }
    }
    if (const auto* bytes = std::get_if<const Bytes*>(&part); bytes != nullptr) {
      for (const PointerAt& pointer : (*bytes)->pointers) {
        if (!pointer.binding.access)
          refuse(fmt::format("The {} does not say its access.", describe_pointer(pointer.offset, parameter, i)));
        require_enumerator("access of the " + describe_pointer(pointer.offset, parameter, i), *pointer.binding.access,
                           Access::read_write);
      }
    }
  }

  void require_no_address(const Parameter& parameter, const Part& part, std::size_t i) const {
    if (!takes_null_only(kernel_, i)) return;
    if (std::holds_alternative<LateScalarId>(part)) {
      refuse(
          fmt::format("The {} is a late scalar; the compiled kernel takes a pointer there, which a late region can "
                      "bind and no scalar.",
                      describe(parameter, i)));
    }
    const auto* scalar = std::get_if<const Scalar*>(&part);
    const auto* index = std::get_if<Index>(&part);
    const bool is_null = scalar != nullptr
                             ? std::ranges::all_of((*scalar)->bytes, [](std::byte byte) { return byte == std::byte{}; })
                             : index != nullptr && index->value == 0;
    if (!is_null) {
      refuse(
          fmt::format("The {} is not null; the compiled kernel takes a pointer there and the spec binds no region to "
                      "it.",
                      describe(parameter, i)));
    }
  }

  void require_width(const Parameter& parameter, const Part& part, std::size_t i) const {
    const auto require = [&](std::size_t given) {
      if (given != parameter.size) {
        refuse(fmt::format("The {} has {} bytes; the kernel was compiled for {}.", describe(parameter, i), given,
                           parameter.size));
      }
    };
    if (const auto* scalar = std::get_if<const Scalar*>(&part)) require((*scalar)->bytes.size());
    if (const auto* scalar = std::get_if<LateScalarId>(&part)) require(late_[scalar->index]->value.size());
    if (const auto* bytes = std::get_if<const Bytes*>(&part)) {
      require((*bytes)->value.size());
      require_pointer_offsets(parameter, **bytes, i);
    }
    if (const auto* index = std::get_if<Index>(&part)) {
      if (parameter.size > sizeof(std::uint64_t)) {
        refuse(fmt::format("The {} is an index; the kernel was compiled for {} bytes there and an index has at most 8.",
                           describe(parameter, i), parameter.size));
      }
      if (parameter.size < sizeof(std::uint64_t) && (index->value >> (8 * parameter.size)) != 0) {
        refuse(fmt::format("The {} is {}; the kernel was compiled for {} bytes there.", describe(parameter, i),
                           index->value, parameter.size));
      }
    }
  }

  static void require_pointer_offsets(const Parameter& parameter, const Bytes& bytes, std::size_t i) {
    const std::size_t size = bytes.value.size();
    std::vector<std::uint64_t> offsets;
    for (const PointerAt& pointer : bytes.pointers) {
      if (pointer.offset % sizeof(DeviceAddress) != 0 || size < sizeof(DeviceAddress) ||
          pointer.offset > size - sizeof(DeviceAddress)) {
        refuse(fmt::format("The {} does not stand at a multiple of {} inside its {} bytes.",
                           describe_pointer(pointer.offset, parameter, i), sizeof(DeviceAddress), size));
      }
      offsets.push_back(pointer.offset);
    }
    // Offsets are multiples of a pointer's size, so pointers overlap only where they are equal.
    std::ranges::sort(offsets);
    const auto twice = std::ranges::adjacent_find(offsets);
    if (twice != offsets.end())
      refuse(fmt::format("Two pointers stand at byte {} of {}.", *twice, describe(parameter, i)));
  }

  static void require_alignment(const Parameter& parameter, const Part& part, std::size_t i) {
    // Every allocation starts at a multiple of 256, so the offset decides.
    const auto is_aligned = [&](const Region& region) { return region.offset % parameter.required_alignment() == 0; };
    if (const auto* binding = std::get_if<const Binding*>(&part)) {
      const Region& region = (*binding)->region;
      if (!is_aligned(region)) {
        refuse(fmt::format("The {} starts at byte {} of its allocation; the kernel needs a multiple of {}.",
                           describe(parameter, i), region.offset, parameter.required_alignment()));
      }
    }
    if (const auto* bytes = std::get_if<const Bytes*>(&part)) {
      for (const auto& [offset, bound] : (*bytes)->pointers) {
        if (!is_aligned(bound.region)) {
          refuse(fmt::format("The {} leads to byte {} of its allocation; the kernel needs a multiple of {}.",
                             describe_pointer(offset, parameter, i), bound.region.offset,
                             parameter.required_alignment()));
        }
      }
    }
  }

  void place(std::size_t i, const Part& part, std::uint32_t offset) {
    const Parameter& parameter = kernel_.spec.parameters[i];
    std::visit(Overloaded{[&](const Binding* binding) { place_pointer(binding->region, parameter.access, offset); },
                          [&](const Scalar* scalar) {
                            std::memcpy(&bound_.parameters[offset], scalar->bytes.data(), scalar->bytes.size());
                          },
                          [&](const Bytes* bytes) {
                            std::memcpy(&bound_.parameters[offset], bytes->value.data(), bytes->value.size());
                            for (const PointerAt& pointer : bytes->pointers) {
                              place_pointer(pointer.binding.region, *pointer.binding.access,
                                            offset + static_cast<std::uint32_t>(pointer.offset));
                            }
                          },
                          [&](Index index) { std::memcpy(&bound_.parameters[offset], &index.value, parameter.size); },
                          [&](LateScalarId id) {
                            const auto& scalar = late_[id.index];
                            std::memcpy(&bound_.parameters[offset], scalar->value.data(), scalar->value.size());
                            bound_.late.push_back({offset, static_cast<std::uint32_t>(i), scalar});
                          }},
               part);
  }

  void place_pointer(const Region& region, Access access, std::uint32_t offset) {
    bound_.pointers.push_back({offset, {region.allocation, region.offset}});
    bound_.uses.push_back({region.allocation, region.offset, region.offset + region.bytes, access});
  }

  const LoadedKernel& kernel_;
  LateScalars late_;
  BoundArguments bound_;
};

}  // namespace

void require_signature(const KernelSpec& spec, std::span<const Argument> arguments) {
  const std::vector<Part> parts = flatten(arguments);
  const std::vector<Parameter>& parameters = spec.parameters;
  if (parts.size() != parameters.size()) {
    refuse(fmt::format("The call has {} arguments; the kernel has {} parameters.", parts.size(), parameters.size()));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!fits(parameters[i].kind, kind_of(parts[i]))) {
      refuse(fmt::format("The {} is {}; the kernel takes {} there.", describe(parameters[i], i),
                         kind_name(kind_of(parts[i])), kind_name(parameters[i].kind)));
    }
  }
}

BoundArguments bind_arguments(const LoadedKernel& kernel, std::span<const Argument> arguments, LateScalars late) {
  return Binder(kernel, late).bind(flatten(arguments));
}

std::vector<BoundRegion> bound_regions(const KernelSpec& spec, std::span<const Argument> arguments) {
  const std::vector<Part> parts = flatten(arguments);
  std::vector<BoundRegion> regions;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (const auto* binding = std::get_if<const Binding*>(&parts[i])) {
      const Access declared = i < spec.parameters.size() ? spec.parameters[i].access : Access::read;
      regions.push_back({(*binding)->region, writes((*binding)->access.value_or(declared)), i});
    }
    if (const auto* bytes = std::get_if<const Bytes*>(&parts[i])) {
      for (const auto& [offset, binding] : (*bytes)->pointers)
        regions.push_back({binding.region, writes(binding.access.value_or(Access::read)), i, offset});
    }
  }
  return regions;
}

std::string describe(const KernelSpec& spec, const BoundRegion& bound) {
  // A call may have more arguments than the kernel has parameters.
  const Parameter parameter = bound.argument < spec.parameters.size() ? spec.parameters[bound.argument] : Parameter{};
  return bound.pointer_offset ? "the " + describe_pointer(*bound.pointer_offset, parameter, bound.argument)
                              : describe(parameter, bound.argument);
}

}  // namespace weft
