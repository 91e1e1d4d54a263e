#pragma once

#include <weft/export.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// What the caller can do about an error. Each code has a different next step.
enum class ErrorCode : std::uint8_t {
  invalid,        ///< The caller's mistake; the same call will be refused again.
  busy,           ///< Nothing changed; try again later.
  out_of_memory,  ///< The driver refused an allocation after idle memory was reclaimed.
  unsupported,    ///< This device, driver or build cannot do it.
  failed,         ///< A producer or a callback failed.
  cancelled,      ///< Cancelled, or what it follows was.
  device_lost,    ///< A sticky device error; every object of the device is over.
  io,             ///< A file could not be read or does not have its format.
  internal,       ///< weft's own mistake.
};

/// The code's name as it stands in the enumeration, for example "invalid".
[[nodiscard]] WEFT_API std::string_view to_string(ErrorCode code) noexcept;

/// The one exception type of weft.
///
/// `sentence()` says what is refused or what failed, with the given value and the limit; `contexts()` say where,
/// innermost first; `what()` is both as one text. Copies share their text and do not throw. Thread-safe to read;
/// `add_context` needs exclusive use of this copy and changes no other. References and pointers that it returned live
/// until then.
class WEFT_API Error : public std::exception {
 public:
  Error(ErrorCode code, std::string sentence, std::source_location where = std::source_location::current());
  /// With the exception that it comes from.
  Error(ErrorCode code, std::string sentence, std::exception_ptr cause,
        std::source_location where = std::source_location::current());
  // Copies and no moves: an error that was moved from would have no text left to give.
  Error(const Error&) noexcept = default;
  Error& operator=(const Error&) noexcept = default;
  ~Error() override = default;

  [[nodiscard]] ErrorCode code() const noexcept;
  [[nodiscard]] const std::string& sentence() const noexcept;
  [[nodiscard]] const std::vector<std::string>& contexts() const noexcept;
  /// Where in weft's sources the error began.
  [[nodiscard]] const std::source_location& where() const noexcept;
  /// The exception that it comes from, of a producer or a callback; null where there is none. Shared by all who were
  /// told of it: it must not be changed.
  [[nodiscard]] std::exception_ptr cause() const noexcept;
  /// "While <outermost context>: while <inner>: <sentence>".
  [[nodiscard]] const char* what() const noexcept override;

  /// Adds one step on the way up, for example `validating commands[3], dispatch of "linear"`.
  void add_context(std::string context);

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace weft
