#include "support/foreign_stream.h"

#include "device_tensor_access.h"

namespace weft::test {

DeviceAddress address_of(const DeviceTensor& tensor) {
  return DeviceTensorAccess::memory(tensor)->address() + DeviceTensorAccess::offset(tensor);
}

ForeignStream::ForeignStream(const Context& context)
    : api_(ContextAccess::state(context)->domain()->api()), stream_(create_stream(api_)) {}

ForeignStream::~ForeignStream() { static_cast<void>(api_->synchronize_stream(stream_.get())); }

void* ForeignStream::native() const noexcept {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(stream_.get()));
}

void ForeignStream::copy(const DeviceTensor& destination, const DeviceTensor& source) const {
  check(api_->copy(stream_.get(), {address_of(destination), address_of(source), source.desc().bytes()}), "copy");
}

void ForeignStream::fill(const DeviceTensor& destination, std::uint8_t value) const {
  check(api_->fill(stream_.get(), {address_of(destination), destination.desc().bytes(), value}), "fill");
}

void ForeignStream::wait() const { check(api_->synchronize_stream(stream_.get()), "wait for a stream"); }

bool ForeignStream::has_drained() const { return api_->query_stream(stream_.get()).ok(); }

}  // namespace weft::test
