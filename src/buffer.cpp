#include "buffer.h"

#include "error_context.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace weft {

Buffer::Buffer(std::shared_ptr<AllocationDomain> domain, StreamHandle stream, std::uint64_t bytes,
               std::uint64_t requested, std::uint64_t allocations, const std::string& what)
    : domain_(std::move(domain)),
      allocated_in_(domain_),
      stream_(stream),
      address_(domain_->allocate(stream, bytes, what)),
      bytes_(bytes),
      requested_(requested),
      allocations_(allocations) {
  domain_->requested.add(requested_, allocations_);
  domain_->reserved.add(bytes_, 1);
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(domain_, other.domain_);
  std::swap(allocated_in_, other.allocated_in_);
  std::swap(stream_, other.stream_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  std::swap(requested_, other.requested_);
  std::swap(allocations_, other.allocations_);
  return *this;
}

Buffer::~Buffer() {
  if (domain_ == nullptr) return;
  allocated_in_->release(stream_, address_, bytes_);
  domain_->requested.subtract(requested_);
  domain_->reserved.subtract(bytes_);
}

void Buffer::adopt(std::shared_ptr<AllocationDomain> domain) noexcept {
  domain_->requested.subtract(requested_);
  domain_->reserved.subtract(bytes_);
  domain_ = std::move(domain);
  domain_->requested.add(requested_, allocations_);
  domain_->reserved.add(bytes_, 1);
}

void copy_now(DeviceApi& api, StreamHandle stream, const CopyNode& copy, const std::string& action) {
  check(api.copy(stream, copy), action);
  const DeviceStatus done = api.synchronize_stream(stream);
  // The caller's memory goes with the error; the copy must not run into it.
  if (!done.ok()) static_cast<void>(api.synchronize_stream(stream));
  check(done, action);
}

PinnedBuffer::PinnedBuffer(std::shared_ptr<AllocationDomain> domain, std::uint64_t bytes, const std::string& what)
    : domain_(std::move(domain)), bytes_(bytes) {
  in_context([&] { return fmt::format("allocating {} bytes of pinned host memory for {}", bytes, what); },
             [&] { check(domain_->api()->allocate_pinned(bytes, memory_), "allocate pinned memory"); });
  domain_->staging.add(bytes_, 1);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(domain_, other.domain_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (domain_ == nullptr) return;
  static_cast<void>(domain_->api()->free_pinned(memory_.host));
  domain_->staging.subtract(bytes_);
}

}  // namespace weft
