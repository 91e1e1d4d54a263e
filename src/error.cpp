#include <weft/error.h>

#include <utility>

namespace weft {

struct Error::State {
  ErrorCode code;
  std::string sentence;
  std::vector<std::string> contexts;
  std::exception_ptr cause;
  std::source_location where;
  std::string what;

  State(ErrorCode error_code, std::string text, std::vector<std::string> steps, std::exception_ptr origin,
        std::source_location place)
      : code(error_code),
        sentence(std::move(text)),
        contexts(std::move(steps)),
        cause(std::move(origin)),
        where(place) {
    for (auto step = contexts.rbegin(); step != contexts.rend(); ++step) {
      what += (what.empty() ? "While " : "while ") + *step + ": ";
    }
    what += sentence;
  }
};

Error::Error(ErrorCode code, std::string sentence, std::source_location where)
    : Error(code, std::move(sentence), nullptr, where) {}

Error::Error(ErrorCode code, std::string sentence, std::exception_ptr cause, std::source_location where)
    : state_(std::make_shared<const State>(code, std::move(sentence), std::vector<std::string>{}, std::move(cause),
                                           where)) {}

ErrorCode Error::code() const noexcept { return state_->code; }
const std::string& Error::sentence() const noexcept { return state_->sentence; }
const std::vector<std::string>& Error::contexts() const noexcept { return state_->contexts; }
const std::source_location& Error::where() const noexcept { return state_->where; }
std::exception_ptr Error::cause() const noexcept { return state_->cause; }
const char* Error::what() const noexcept { return state_->what.c_str(); }

void Error::add_context(std::string context) {
  // Copies share their state, so a new one is made instead of changing it under them.
  std::vector<std::string> contexts = state_->contexts;
  contexts.push_back(std::move(context));
  state_ =
      std::make_shared<const State>(state_->code, state_->sentence, std::move(contexts), state_->cause, state_->where);
}

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid:
      return "invalid";
    case ErrorCode::busy:
      return "busy";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::failed:
      return "failed";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::device_lost:
      return "device_lost";
    case ErrorCode::io:
      return "io";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

}  // namespace weft
