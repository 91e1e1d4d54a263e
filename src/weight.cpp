#include "weight.h"

namespace weft {

Weight::Weight(const std::shared_ptr<AllocationDomain>& domain, std::uint64_t bytes, const std::string& label)
    : memory_(domain, domain->stream(), bytes, label),
      address_(memory_.address()),
      bytes_(bytes),
      requested_(domain, &AllocationDomain::requested, bytes, 1) {}

Weight::Weight(const std::shared_ptr<AllocationDomain>& domain, DeviceAddress address, std::uint64_t bytes) noexcept
    : address_(address), bytes_(bytes), requested_(domain, &AllocationDomain::requested, bytes, 1) {}

Weight::~Weight() {
  if (release_) release_();
}

void Weight::adopt(const std::shared_ptr<AllocationDomain>& domain, MemoryReservation charge) noexcept {
  if (memory_.bytes() > 0) memory_.count_in(domain, std::move(charge));
  requested_ = {domain, &AllocationDomain::requested, bytes_, 1};
}

}  // namespace weft
