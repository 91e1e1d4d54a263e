#include "pinned_buffer.h"

#include "error_context.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace weft {

PinnedBuffer::PinnedBuffer(std::shared_ptr<AllocationDomain> domain, std::uint64_t bytes, const std::string& what,
                           Shortage shortage)
    : domain_(std::move(domain)), bytes_(bytes) {
  in_context([&] { return fmt::format("allocating {} bytes of pinned host memory for {}", bytes, what); },
             [&] {
               charge_ = domain_->charge(bytes, shortage);
               check(domain_->api()->allocate_pinned(bytes, memory_), "allocate pinned memory");
             });
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
  if (domain_ != nullptr) static_cast<void>(domain_->api()->free_pinned(memory_.host));
}

}  // namespace weft
