#pragma once

#include "exchange.h"
#include "measure.h"
#include "runner.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

// How long it takes until all slots of a model are ready.

namespace weft::bench {

inline constexpr std::array kPrepareFigures{
    Figure{"prepare_wall", "us", "until all slots are ready"},
    Figure{"prepare_node", "us", "the same by node and slot"},
};

/// Makes all slots of one side; they are ready when it returns.
using Preparation = std::function<std::unique_ptr<Runner>()>;

/// Times one preparation; then every slot must answer, and what was prepared is dropped outside the time. `name` is for
/// messages. Errors: `failed` for a wrong answer.
[[nodiscard]] Sample measure_prepare(const std::string& name, const Preparation& prepare, const Exchange& exchange,
                                     std::uint32_t nodes, std::uint32_t slots);

}  // namespace weft::bench
