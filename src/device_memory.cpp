#include "device_memory.h"

#include "error_context.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace weft {

namespace {

std::string describe(std::uint64_t bytes, const std::string& what) {
  return fmt::format("allocating {} bytes for {}", bytes, what);
}

MemoryReservation charge_memory(const AllocationDomain& domain, std::uint64_t bytes, const std::string& what) {
  return in_context([&] { return describe(bytes, what); }, [&] { return domain.charge(bytes); });
}

}  // namespace

DeviceMemory::DeviceMemory(std::shared_ptr<AllocationDomain> domain, StreamHandle stream, std::uint64_t bytes,
                           const std::string& what)
    : DeviceMemory(domain, stream, bytes, what, charge_memory(*domain, bytes, what)) {}

DeviceMemory::DeviceMemory(std::shared_ptr<AllocationDomain> domain, StreamHandle stream, std::uint64_t bytes,
                           const std::string& what, MemoryReservation charge)
    : domain_(std::move(domain)), home_(domain_), charge_(std::move(charge)), stream_(stream), bytes_(bytes) {
  in_context([&] { return describe(bytes, what); }, [&] { address_ = domain_->allocate(stream, bytes); });
  reserved_ = {home_, &AllocationDomain::reserved, bytes_, 1};
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(domain_, other.domain_);
  std::swap(home_, other.home_);
  std::swap(charge_, other.charge_);
  std::swap(reserved_, other.reserved_);
  std::swap(stream_, other.stream_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

// The members that count and charge go after this: once the memory is given back.
DeviceMemory::~DeviceMemory() { release(); }

void DeviceMemory::release() noexcept {
  if (domain_ != nullptr) domain_->release(stream_, address_, bytes_);
  domain_ = nullptr;
}

std::uint64_t DeviceMemory::uncharged_bytes(const AllocationDomain& domain) const noexcept {
  return home_ == nullptr || domain.budget() == home_->budget() ? 0 : bytes_;
}

void DeviceMemory::count_in(const std::shared_ptr<AllocationDomain>& domain, MemoryReservation charge) noexcept {
  if (domain->budget() != home_->budget()) charge_ = std::move(charge);
  reserved_ = {domain, &AllocationDomain::reserved, bytes_, 1};
  home_ = domain;
}

void copy_now(DeviceApi& api, StreamHandle stream, const CopyNode& copy, const std::string& action) {
  check(api.copy(stream, copy), action);
  const DeviceStatus done = api.synchronize_stream(stream);
  // The caller's memory goes with the error; the copy must not run into it.
  if (!done.ok()) static_cast<void>(api.synchronize_stream(stream));
  check(done, action);
}

}  // namespace weft
