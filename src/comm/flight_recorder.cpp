// See flight_recorder.h.
#include "comm/flight_recorder.h"

#include <nlohmann/json.hpp>

#include "base/clock.h"

namespace ingot {
namespace {}  // namespace

std::string Operation::str(const std::string& group) const {
  CommRequest request;
  request.kind = kind;
  request.in.meta = in;
  request.out.meta = out;
  std::string text = fmt::format("{} #{} of group '{}'", request.str(), number, group);
  if (peer >= 0) text += sends ? fmt::format(" to rank {}", peer) : fmt::format(" from rank {}", peer);
  if (step >= 0) text += fmt::format(" at step {}", step);
  return text;
}

size_t FlightRecorder::add_group(const std::string& name, const std::vector<int>& members) {
  const std::lock_guard lock(mutex_);
  groups_.push_back({name, members, {}, 0});
  return groups_.size() - 1;
}

FlightRecorder::Ticket FlightRecorder::begin(size_t group, const Operation& operation) {
  const double now = wall_seconds();
  const std::lock_guard lock(mutex_);
  Group& g = groups_[group];
  g.entries.push_back({operation, FlightState::started, now, 0, 0});
  if (g.entries.size() > kKept) {
    g.entries.pop_front();
    ++g.first;
  }
  return {group, g.first + static_cast<int64_t>(g.entries.size()) - 1};
}

void FlightRecorder::mark(Ticket ticket, FlightState state) {
  const double now = wall_seconds();
  const std::lock_guard lock(mutex_);
  Group& g = groups_[ticket.group];
  if (ticket.index < g.first) return;
  Entry& e = g.entries[static_cast<size_t>(ticket.index - g.first)];
  e.state = state;
  (state == FlightState::waiting ? e.waited : e.ended) = now;
}

std::string FlightRecorder::json(int rank, int ranks, int64_t step, const std::string& reason) const {
  using Json = nlohmann::ordered_json;
  const auto time = [](double t) { return t > 0 ? Json(t) : Json(nullptr); };
  Json groups = Json::array();
  const std::lock_guard lock(mutex_);
  for (const Group& g : groups_) {
    Json operations = Json::array();
    for (const Entry& e : g.entries)
      operations.push_back({{"number", e.operation.number},
                            {"operation", e.operation.str(g.name)},
                            {"step", e.operation.step},
                            {"state", name_of(e.state)},
                            {"started", time(e.started)},
                            {"waited", time(e.waited)},
                            {"ended", time(e.ended)}});
    groups.push_back({{"name", g.name}, {"members", g.members}, {"operations", std::move(operations)}});
  }
  const Json all{{"format", 1},
                 {"rank", rank},
                 {"ranks", ranks},
                 {"reason", reason},
                 {"step", step},
                 {"time", wall_seconds()},
                 {"groups", std::move(groups)}};
  return all.dump(1) + "\n";
}

}  // namespace ingot
