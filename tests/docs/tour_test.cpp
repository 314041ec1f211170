// A tour in a terminal: what a person sees who trains, interrupts, resumes, generates and reads the report.
// tmux is the terminal, whose screen the test reads.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "support/clone.h"

namespace ingot::tour_test {

/// A terminal of a given width with a shell in a clone, closed at the end.
class Screen {
 public:
  Screen(const test::Clone& clone, int columns) : socket_(clone / "tmux.socket") {
    tmux("new-session -d -x " + std::to_string(columns) + " -y 50 -c '" + clone.path() +
         "' \"env -i TERM=screen LANG=C.UTF-8 HOME='" + clone.path() +
         "' PATH=/usr/local/bin:/usr/bin:/bin PS1='typed> ' "
         "bash --norc --noprofile\"");
    wait_for("typed> ");
  }
  ~Screen() { tmux("kill-server"); }
  void type(const std::string& line) const { tmux("send-keys -l '" + line + "'"), press("Enter"); }
  void press(const std::string& key) const { tmux("send-keys " + key); }
  void clear() const { tmux("send-keys -R"), tmux("clear-history"); }
  /// All lines, those that have scrolled away too.
  std::string text() const { return tmux("capture-pane -p -J -S -"); }
  /// The text once it holds `expected`; a failure after two minutes.
  std::string wait_for(const std::string& expected) const {
    std::string seen;
    for (int i = 0; i < 1200; ++i) {
      seen = text();
      if (seen.find(expected) != std::string::npos) return seen;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    ADD_FAILURE() << "not on the screen: " << expected << "\n" << seen;
    return seen;
  }

 private:
  std::string tmux(const std::string& command) const {
    return test::run_process({"/bin/sh", "-c", "tmux -f /dev/null -S '" + socket_ + "' " + command}).output;
  }
  std::string socket_;
};

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

bool no_tmux() {
  return std::system("command -v tmux >/dev/null") != 0;
}

TEST(Tour, TrainInterruptResumeGenerateEvalReport) {
  if (no_tmux()) GTEST_SKIP() << "SKIPPED: no tmux; scripts/setup --tests installs it";
  const test::Clone clone;
  const Screen screen(clone, 130);
  screen.type(clone.path_line());
  screen.type("ingot run recipes/first.toml --phases.0.steps=4000 --samples.every=0 --evaluation.every=0");
  std::string seen = screen.wait_for("step 100/4000");
  EXPECT_EQ(count(seen, "step 99/4000"), 0) << "a step is a line that the next one rewrites\n" << seen;
  screen.press("C-c");
  seen = screen.wait_for("run the same command to resume");
  EXPECT_EQ(count(seen, "interrupted at step"), 1) << seen;

  screen.clear();
  screen.type("ingot run recipes/first.toml --phases.0.steps=4000 --samples.every=0 --evaluation.every=0");
  screen.wait_for("resuming at step");
  screen.press("C-c");
  screen.wait_for("run the same command to resume");

  screen.clear();
  screen.type("ingot run recipes/first.toml --run.folder=runs/short --phases.0.steps=20");
  seen = screen.wait_for("report, for a browser: runs/short/report.html");
  EXPECT_EQ(count(seen, "sample 1 of 3, which continues"), 1) << seen;
  EXPECT_EQ(count(seen, "step 20/20"), 1) << seen;

  screen.clear();
  screen.type("ingot generate runs/short --prompt \"The tape\" --max-tokens 8; echo code $?");
  EXPECT_GE(count(screen.wait_for("code 0"), "The tape"), 2) << "as typed, and at the head of the answer";
  screen.type("ingot eval runs/short");
  screen.wait_for("bits per byte");
  screen.type("ingot report runs/short; echo report $?");
  screen.wait_for("report 0");
  EXPECT_TRUE(std::filesystem::exists(clone / "runs/short/report.html"));

  screen.clear();
  screen.type(
      "ingot run recipes/first.toml --data.sources.0.path=nosuch/*.md --data.folder=data/none "
      "--run.folder=runs/none");
  seen = screen.wait_for("hint:");
  EXPECT_EQ(count(seen, "interrupted"), 0) << seen;
  EXPECT_EQ(count(seen, "learning the vocabulary"), 0) << "nothing stale stands before an error\n" << seen;
}

// The line that is rewritten never wraps, or each rewriting would leave a line behind.
TEST(Tour, ANarrowTerminalShowsOneLineOfProgress) {
  if (no_tmux()) GTEST_SKIP() << "SKIPPED: no tmux; scripts/setup --tests installs it";
  const test::Clone clone;
  const Screen screen(clone, 20);
  screen.type(
      "build/release/ingot run recipes/first.toml --phases.0.steps=4000 --samples.every=0 "
      "--evaluation.every=0");
  const std::string seen = screen.wait_for("step 100/4000");
  EXPECT_LE(count(seen, "/4000"), 5) << seen;
  screen.press("C-c");
  screen.wait_for("resume");
}

}  // namespace ingot::tour_test
