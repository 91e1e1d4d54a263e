#include "buffer.h"

#include "error_context.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace weft {

Buffer::Buffer(std::shared_ptr<AllocationDomain> domain, StreamHandle stream, std::uint64_t bytes,
               const std::string& what)
    : domain_(std::move(domain)), stream_(stream), address_(domain_->allocate(stream, bytes, what)), bytes_(bytes) {
  reserved_ = {domain_, &AllocationDomain::reserved, bytes_, 1};
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(domain_, other.domain_);
  std::swap(reserved_, other.reserved_);
  std::swap(stream_, other.stream_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (domain_ != nullptr) domain_->release(stream_, address_, bytes_);
}

void Buffer::count_in(const std::shared_ptr<AllocationDomain>& domain) noexcept {
  reserved_ = {domain, &AllocationDomain::reserved, bytes_, 1};
}

Weight::Weight(const std::shared_ptr<AllocationDomain>& domain, std::uint64_t bytes, const std::string& label)
    : buffer(domain, domain->stream(), bytes, label), requested(domain, &AllocationDomain::requested, bytes, 1) {}

void Weight::adopt(const std::shared_ptr<AllocationDomain>& domain) noexcept {
  buffer.count_in(domain);
  requested = {domain, &AllocationDomain::requested, buffer.bytes(), 1};
}

void copy_now(DeviceApi& api, StreamHandle stream, const CopyNode& copy, const std::string& action) {
  check(api.copy(stream, copy), action);
  const DeviceStatus done = api.synchronize_stream(stream);
  // The caller's memory goes with the error; the copy must not run into it.
  if (!done.ok()) static_cast<void>(api.synchronize_stream(stream));
  check(done, action);
}

PinnedBuffer::PinnedBuffer(std::shared_ptr<AllocationDomain> domain, std::uint64_t bytes, const std::string& what)
    : domain_(std::move(domain)) {
  in_context([&] { return fmt::format("allocating {} bytes of pinned host memory for {}", bytes, what); },
             [&] { check(domain_->api()->allocate_pinned(bytes, memory_), "allocate pinned memory"); });
  staging_ = {domain_, &AllocationDomain::staging, bytes, 1};
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(domain_, other.domain_);
  std::swap(staging_, other.staging_);
  std::swap(memory_, other.memory_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (domain_ != nullptr) static_cast<void>(domain_->api()->free_pinned(memory_.host));
}

}  // namespace weft
