// A browser for tests of pages: headless Chromium behind a pipe, spoken to in its DevTools protocol. It shows
// one page at a time, in which a test types, moves the mouse and looks.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/support.h"

namespace ingot::test {

class Browser {
 public:
  /// The program's name; "" if there is none: a test then skips and names scripts/setup --tests.
  static std::string program();

  /// Starts it with a window of this size; its profile is in `dir`.
  Browser(const TempDir& dir, int width, int height);
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  /// Shows a page and waits until it is loaded.
  void open(const std::string& url);
  /// The value of an expression of JavaScript in the page, awaited. What it throws fails the test.
  nlohmann::json value(const std::string& expression);
  /// Waits until an expression is true. False, and a failure, after 30 seconds.
  bool wait_for(const std::string& expression);
  /// Types into what has the focus, as a keyboard does.
  void type(const std::string& text);
  void press_enter();
  /// Moves the mouse to the middle of the first element that matches, and clicks where asked to.
  void point_at(const std::string& selector, bool click = false);
  /// What went wrong in the page so far: exceptions, errors of the console, files that were refused.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  nlohmann::json call(const std::string& method, const nlohmann::json& parameters = nlohmann::json::object());
  nlohmann::json next_message();
  void note(const nlohmann::json& event);

  int pid_ = -1, to_ = -1, from_ = -1;
  int64_t last_ = 0;
  std::string held_, session_;
  std::vector<std::string> problems_;
};

}  // namespace ingot::test
