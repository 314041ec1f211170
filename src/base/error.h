// The two kinds of failure. `Error`: something a person can cause or mend (a file, a config, a disk, bad
// input). `InternalError`: a broken invariant of the program, raised by INGOT_CHECK. Both are exceptions that
// cross folders freely; worker threads pass them to the thread that waits; only apps/ and tests catch them.
#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace ingot {

/// A failure that a person can act on. The message says what happened, to what, what was expected and what
/// was found; `hint` says what to do. Paths and names are quoted.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::string hint = {})
      : std::runtime_error(message), hint_(std::move(hint)) {}
  const std::string& hint() const { return hint_; }

 private:
  std::string hint_;
};

/// A broken promise inside the program: always a bug, never a user's mistake.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws Error with a formatted message: fail("'{}' has {} bytes, expected {}", path, found, expected).
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
}  // namespace detail

}  // namespace ingot

/// Always-on invariant: INGOT_CHECK(rows >= 0, "rows = {}", rows).
#define INGOT_CHECK(condition, ...)                                                                 \
  do {                                                                                              \
    if (!(condition)) [[unlikely]]                                                                  \
      ::ingot::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
