#include "staging.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace weft {

namespace {

constexpr std::uint64_t kSmallestPiece = 4096;

}  // namespace

StagedCopy::StagedCopy(std::shared_ptr<AllocationDomain> domain, Shortage shortage) noexcept
    : domain_(std::move(domain)), shortage_(shortage) {}

StagedCopy::~StagedCopy() {
  for (const Piece& piece : pieces_) {
    // Fails only when the device is lost, and then nothing uses the memory.
    if (piece.in_use) static_cast<void>(domain_->api()->synchronize_event(piece.copied.get()));
  }
}

void StagedCopy::reserve(std::uint64_t bytes) {
  const std::uint64_t largest = std::min(bytes, kLargestPiece);
  const std::size_t count = bytes > kLargestPiece ? pieces_.size() : 1;
  for (std::size_t i = 0; i < count; ++i) {
    Piece& piece = pieces_[(next_ + i) % pieces_.size()];
    const bool is_ready = piece.copied.get() != EventHandle::none && piece.memory.bytes() >= largest;
    if (!is_ready) make_ready(piece, largest);
  }
}

void StagedCopy::copy(StreamHandle stream, DeviceAddress destination, std::span<const std::byte> source) {
  while (!source.empty()) {
    const std::uint64_t bytes = std::min<std::uint64_t>(source.size(), kLargestPiece);
    Piece& piece = pieces_[next_];
    make_ready(piece, bytes);
    queue(piece, stream, destination, source.first(bytes));
    next_ = (next_ + 1) % pieces_.size();
    destination += bytes;
    source = source.subspan(bytes);
  }
}

void StagedCopy::make_ready(Piece& piece, std::uint64_t bytes) {
  if (piece.in_use) check(domain_->api()->synchronize_event(piece.copied.get()), "copy to the device");
  piece.in_use = false;
  if (piece.copied.get() == EventHandle::none) piece.copied = create_event(domain_->api());
  if (piece.memory.bytes() >= bytes) return;
  piece.memory = {};  // First, so that the two never count together.
  piece.memory = PinnedBuffer(domain_, std::max(std::bit_ceil(bytes), kSmallestPiece), "staging of copies", shortage_);
}

void StagedCopy::queue(Piece& piece, StreamHandle stream, DeviceAddress destination,
                       std::span<const std::byte> source) {
  DeviceApi& api = *domain_->api();
  std::memcpy(piece.memory.host(), source.data(), source.size());
  check(api.copy(stream, {destination, piece.memory.device(), source.size()}), "copy to the device");
  const DeviceStatus recorded = api.record_event(piece.copied.get(), stream);
  piece.in_use = recorded.ok();
  // Without an event the copy can only be waited for here.
  if (!recorded.ok()) static_cast<void>(api.synchronize_stream(stream));
  check(recorded, "copy to the device");
}

}  // namespace weft
