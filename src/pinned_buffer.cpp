#include "pinned_buffer.h"

#include "error_context.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace weft {

namespace {

std::string describe(std::uint64_t bytes, const std::string& what) {
  return fmt::format("allocating {} bytes of pinned host memory for {}", bytes, what);
}

MemoryReservation charge_memory(const AllocationDomain& domain, std::uint64_t bytes, const std::string& what,
                                Shortage shortage) {
  return in_context([&] { return describe(bytes, what); }, [&] { return domain.charge(bytes, shortage); });
}

}  // namespace

PinnedBuffer::PinnedBuffer(std::shared_ptr<AllocationDomain> domain, std::uint64_t bytes, const std::string& what,
                           Shortage shortage)
    : PinnedBuffer(domain, bytes, what, charge_memory(*domain, bytes, what, shortage), shortage) {}

PinnedBuffer::PinnedBuffer(std::shared_ptr<AllocationDomain> domain, std::uint64_t bytes, const std::string& what,
                           MemoryReservation charge, Shortage shortage)
    : domain_(std::move(domain)), charge_(std::move(charge)), bytes_(bytes) {
  in_context([&] { return describe(bytes, what); }, [&] { memory_ = domain_->allocate_pinned(bytes, shortage); });
  staging_ = {domain_, &AllocationDomain::staging, bytes, 1};
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(domain_, other.domain_);
  std::swap(charge_, other.charge_);
  std::swap(staging_, other.staging_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

// The members that count and charge go after this: once the memory is given back.
PinnedBuffer::~PinnedBuffer() {
  if (domain_ != nullptr) log_swallowed(domain_->api()->free_pinned(memory_.host), "free pinned memory");
}

std::uint64_t PinnedBuffer::uncharged_bytes(const AllocationDomain& domain) const noexcept {
  return domain_ == nullptr || domain.budget() == domain_->budget() ? 0 : bytes_;
}

void PinnedBuffer::count_in(const std::shared_ptr<AllocationDomain>& domain, MemoryReservation charge) noexcept {
  if (domain->budget() != domain_->budget()) charge_ = std::move(charge);
  staging_ = {domain, &AllocationDomain::staging, bytes_, 1};
  domain_ = domain;
}

}  // namespace weft
