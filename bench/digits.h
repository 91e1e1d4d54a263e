#pragma once

#include "digits/test_set.h"
#include "exchange.h"

#include <cstdint>

namespace weft::bench {

/// Batches of a test set's images; each begins one image after the one before.
[[nodiscard]] Exchange digits_exchange(const digits::TestSet& set, std::uint32_t batch);

}  // namespace weft::bench
