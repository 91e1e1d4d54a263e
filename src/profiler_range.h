#pragma once

#include <string_view>

#if WEFT_NVTX
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <cstddef>
#endif

namespace weft {

#if WEFT_NVTX

namespace detail {

inline nvtxDomainHandle_t profiler_domain() noexcept {
  static const nvtxDomainHandle_t domain = ::nvtxDomainCreateA("weft");
  return domain;
}

/// "<verb> <title>" as NVTX takes it, without an allocation; what does not fit is cut off. Used up within its
/// statement.
class ProfilerEvent {
 public:
  ProfilerEvent(std::string_view verb, std::string_view title) noexcept {
    append(verb);
    append(" ");
    append(title);
    event_.version = NVTX_VERSION;
    event_.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event_.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event_.message.ascii = text_.data();
  }
  ProfilerEvent(const ProfilerEvent&) = delete;
  ProfilerEvent& operator=(const ProfilerEvent&) = delete;
  [[nodiscard]] const nvtxEventAttributes_t* get() const noexcept { return &event_; }

 private:
  void append(std::string_view part) noexcept {
    const std::size_t count = std::min(part.size(), text_.size() - 1 - length_);
    std::copy_n(part.begin(), count, text_.begin() + static_cast<std::ptrdiff_t>(length_));
    length_ += count;
  }

  std::array<char, 128> text_{};
  std::size_t length_ = 0;
  nvtxEventAttributes_t event_{};
};

}  // namespace detail

/// A range of this thread that profilers show as "<verb> <title>", from here to the end of the scope. For
/// -DWEFT_NVTX=ON; else it compiles to nothing.
class [[nodiscard]] ProfilerRange {
 public:
  ProfilerRange(std::string_view verb, std::string_view title) noexcept {
    ::nvtxDomainRangePushEx(detail::profiler_domain(), detail::ProfilerEvent(verb, title).get());
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange() { ::nvtxDomainRangePop(detail::profiler_domain()); }
};

/// A mark of this thread at this moment.
inline void profiler_mark(std::string_view verb, std::string_view title) noexcept {
  ::nvtxDomainMarkEx(detail::profiler_domain(), detail::ProfilerEvent(verb, title).get());
}

#else

class [[nodiscard]] ProfilerRange {
 public:
  constexpr ProfilerRange(std::string_view /*verb*/, std::string_view /*title*/) noexcept {}
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange() {}  // So that a range that is only declared counts as used.
};

inline void profiler_mark(std::string_view /*verb*/, std::string_view /*title*/) noexcept {}

#endif

}  // namespace weft
