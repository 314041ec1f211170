// See browser.h. Chromium's --remote-debugging-pipe reads messages from descriptor 3 and writes them to 4:
// JSON, each ended by a zero byte.
#include "support/browser.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace ingot::test {

using Json = nlohmann::json;

namespace {

/// A pipe whose ends have numbers above those that a child gets.
struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    read = ::fcntl(ends[0], F_DUPFD_CLOEXEC, 10);
    write = ::fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
    ::close(ends[0]), ::close(ends[1]);
  }
  int read, write;
};

}  // namespace

std::string Browser::program() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
    if (std::system((std::string("command -v ") + name + " > /dev/null").c_str()) == 0) return name;
  return "";
}

Browser::Browser(const TempDir& dir, int width, int height) {
  ::signal(SIGPIPE, SIG_IGN);
  const Pipe commands, answers;
  std::vector<std::string> words = {
      program(),       "--headless=new",          "--no-sandbox",
      "--disable-gpu", "--remote-debugging-pipe", "--user-data-dir=" + (dir / "profile"),
      "about:blank"};
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, commands.read, 3);
  ::posix_spawn_file_actions_adddup2(&actions, answers.write, 4);
  ::posix_spawn_file_actions_addopen(&actions, 2, (dir / "browser_errors").c_str(), O_WRONLY | O_CREAT, 0644);
  const int error = ::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(commands.read), ::close(answers.write);
  to_ = commands.write, from_ = answers.read;
  if (error != 0) throw std::runtime_error("cannot start " + words[0]);
  const Json page = call("Target.createTarget", {{"url", "about:blank"}});
  session_ = call("Target.attachToTarget", {{"targetId", page["targetId"]}, {"flatten", true}})["sessionId"];
  for (const char* domain : {"Page", "Runtime", "Log"}) call(std::string(domain) + ".enable");
  call("Emulation.setDeviceMetricsOverride",
       {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", false}});
}

Browser::~Browser() {
  ::close(to_);  // it ends with its pipe
  int status = 0;
  for (int i = 0; i < 500 && ::waitpid(pid_, &status, WNOHANG) == 0; ++i) {
    if (i == 400) ::kill(pid_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::close(from_);
}

Json Browser::next_message() {
  size_t end;
  while ((end = held_.find('\0')) == std::string::npos) {
    pollfd wait{from_, POLLIN, 0};
    char buffer[1 << 16];
    const ssize_t n = ::poll(&wait, 1, 60'000) > 0 ? ::read(from_, buffer, sizeof buffer) : 0;
    if (n <= 0) throw std::runtime_error("the browser does not answer");
    held_.append(buffer, static_cast<size_t>(n));
  }
  Json message = Json::parse(held_.substr(0, end));
  held_.erase(0, end + 1);
  return message;
}

void Browser::note(const Json& event) {
  const std::string method = event.value("method", "");
  const Json& p = event.value("params", Json::object());
  if (method == "Runtime.exceptionThrown") problems_.push_back(p["exceptionDetails"].dump());
  if (method == "Log.entryAdded" && p["entry"]["level"] == "error") problems_.push_back(p["entry"].dump());
}

Json Browser::call(const std::string& method, const Json& parameters) {
  Json message = {{"id", ++last_}, {"method", method}, {"params", parameters}};
  if (!session_.empty()) message["sessionId"] = session_;
  const std::string text = message.dump();
  for (size_t sent = 0; sent <= text.size();) {
    const ssize_t n = ::write(to_, text.c_str() + sent, text.size() + 1 - sent);
    if (n <= 0) throw std::runtime_error("the browser has ended");
    sent += static_cast<size_t>(n);
  }
  for (;;) {
    Json answer = next_message();
    if (!answer.contains("id")) {
      note(answer);
      continue;
    }
    if (answer["id"] != last_) continue;
    if (answer.contains("error")) throw std::runtime_error(method + ": " + answer["error"].dump());
    return answer["result"];
  }
}

void Browser::open(const std::string& url) {
  call("Page.navigate", {{"url", url}});
  wait_for("document.readyState === 'complete' && location.href !== 'about:blank'");
}

Json Browser::value(const std::string& expression) {
  const Json result =
      call("Runtime.evaluate", {{"expression", expression}, {"awaitPromise", true}, {"returnByValue", true}});
  EXPECT_FALSE(result.contains("exceptionDetails")) << expression << "\n" << result.dump(1);
  return result["result"].value("value", Json());
}

bool Browser::wait_for(const std::string& expression) {
  for (int i = 0; i < 1500; ++i) {
    if (value("Boolean(" + expression + ")") == true) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ADD_FAILURE() << "not within 30 seconds: " << expression;
  return false;
}

void Browser::type(const std::string& text) {
  call("Input.insertText", {{"text", text}});
}

void Browser::press_enter() {
  for (const char* kind : {"keyDown", "keyUp"})
    call(
        "Input.dispatchKeyEvent",
        {{"type", kind}, {"key", "Enter"}, {"code", "Enter"}, {"windowsVirtualKeyCode", 13}, {"text", "\r"}});
}

void Browser::point_at(const std::string& selector, bool click) {
  const Json at = value("(() => { const e = document.querySelector(" + Json(selector).dump() +
                        "); e.scrollIntoView({block: 'center'}); const r = e.getClientRects()[0]; "
                        "return [r.left + r.width / 2, r.top + r.height / 2]; })()");
  if (!at.is_array()) return;
  const auto send = [&](const char* kind, const char* button) {
    call("Input.dispatchMouseEvent",
         {{"type", kind}, {"x", at[0]}, {"y", at[1]}, {"button", button}, {"clickCount", click ? 1 : 0}});
  };
  send("mouseMoved", "none");
  if (click) send("mousePressed", "left"), send("mouseReleased", "left");
}

}  // namespace ingot::test
