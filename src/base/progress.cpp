// See progress.h.
#include "base/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace ingot {
namespace {

Progress::Sink terminal_or_log() {
  const bool terminal = log::has_status_line();
  Progress::Sink sink;
  sink.now = monotonic_seconds;
  sink.interval = terminal ? 0.1 : 10;
  sink.write = [terminal](const std::string& line, bool last) {
    if (terminal) log::set_status(last ? "" : line);
    if (!line.empty() && (!terminal || last)) log::info("{}", line);
  };
  return sink;
}

/// With three digits, in the largest unit of which there is at least one; each is `base` of the one before.
std::string scaled(double value, const char* const* units, int count, double base) {
  int unit = 0;
  while (value >= base - 0.5 && unit + 1 < count) value /= base, ++unit;
  const char* format = unit == 0 || value >= 99.95 ? "{:.0f}{}" : value >= 9.995 ? "{:.1f}{}" : "{:.2f}{}";
  return fmt::format(fmt::runtime(format), value, units[unit]);
}

}  // namespace

std::string format_bytes(double bytes) {
  static const char* const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  return scaled(bytes, units, 6, 1024);
}

std::string format_count(double count) {
  static const char* const units[] = {"", "k", "M", "B", "T"};
  return scaled(count, units, 5, 1000);
}

std::string group_digits(int64_t value) {
  std::string text = std::to_string(value);
  for (auto i = static_cast<int>(text.size()) - 3; i > (value < 0 ? 1 : 0); i -= 3)
    text.insert(static_cast<size_t>(i), 1, ',');
  return text;
}

std::string format_seconds(double seconds) {
  constexpr double kYear = 365.25 * 86400;
  if (!std::isfinite(seconds)) return "a time that is not known";
  if (seconds >= 2e4 * kYear) return fmt::format("{:.2g} years", seconds / kYear);
  if (seconds >= 2 * kYear) return group_digits(std::llround(seconds / kYear)) + " years";
  if (seconds < 0.0995) return fmt::format("{:.0f} ms", 1000 * std::max(seconds, 0.0));
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
  if (whole < 48 * 3600) return fmt::format("{} h {:02} m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

void RecentSpeed::add(double now, double more) {
  constexpr double kMemory = 60;  // seconds
  const double passed = std::max(now - last_, 0.0), kept = std::exp(-passed / kMemory);
  work_ = work_ * kept + more;
  seconds_ = seconds_ * kept + passed;
  last_ = now;
}

Progress::Progress(std::string what, int64_t total, Unit unit)
    : Progress(std::move(what), total, unit, terminal_or_log()) {}
Progress::Progress(std::string what, int64_t total, Unit unit, Sink sink)
    : what_(std::move(what)),
      total_(total),
      unit_(unit),
      sink_(std::move(sink)),
      start_(sink_.now()),
      speed_(start_) {
  next_ = start_ + std::min(sink_.interval, 2.0);  // a short job prints nothing but its last line
}

Progress::~Progress() {
  if (!finished_) sink_.write("", true);
}

std::string Progress::amount(double value) const {
  return unit_ == Unit::bytes ? format_bytes(value) : format_count(value);
}

void Progress::update(int64_t done) {
  done_.store(done, std::memory_order_relaxed);
  const double now = sink_.now();
  if (now < next_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  if (finished_ || now < next_.load(std::memory_order_relaxed)) return;
  next_ = now + sink_.interval;
  speed_.add(now, static_cast<double>(done - counted_));
  counted_ = done;
  sink_.write(line(), false);
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(finished_, true)) return;
  const double seconds = sink_.now() - start_;
  const auto done = static_cast<double>(done_.load());
  if (done == 0 && total_ == 0) return sink_.write(what_ + ": up to date", true);
  std::string text = fmt::format("{}: {} in {}", what_, amount(done), format_seconds(seconds));
  if (seconds > 0.05) text += fmt::format(" ({}/s)", amount(done / seconds));
  sink_.write(text, true);
}

std::string Progress::line() const {
  const auto done = static_cast<double>(done_.load());
  const double speed = speed_.per_second();
  std::string text = what_ + ": ";
  if (total_ > 0) {
    const auto total = static_cast<double>(total_);
    text += fmt::format("{:.0f} %, {} of {}", 100 * std::min(done / total, 1.0), amount(done), amount(total));
    text += fmt::format(", {}/s", amount(speed));
    if (speed > 0 && done < total) text += fmt::format(", {} left", format_seconds((total - done) / speed));
  } else {
    text += fmt::format("{}, {}/s", amount(done), amount(speed));
  }
  return text;
}

}  // namespace ingot
