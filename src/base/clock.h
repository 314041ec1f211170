// Time: a monotonic clock in seconds for durations, and the wall clock for records.
#pragma once
#include <chrono>

namespace ingot {

inline double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace ingot
