// See rank_lines.h.
#include "train/rank_lines.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/range.h"
#include "report/json_lines.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLongest = 1e9;  ///< seconds of a window

int64_t count_at(const Json& j, const char* key, const std::string& where) {
  const auto found = j.find(key);
  const bool whole = found != j.end() && found->is_number_integer();
  // An unsigned number beyond int64 becomes negative here.
  const int64_t value = whole ? found->get<int64_t>() : -1;
  if (value < 1 || value > static_cast<int64_t>(bounds::kSteps))
    fail("{}: not a line of ranks: \"{}\" is not a number of steps", where, key);
  return value;
}

std::vector<double> seconds_at(const Json& j, const char* key, const std::string& where) {
  const auto found = j.find(key);
  if (found == j.end() || !found->is_array() || found->empty() ||
      found->size() > static_cast<size_t>(bounds::kRanks))
    fail("{}: not a line of ranks: \"{}\" is not a list with a number for each rank", where, key);
  std::vector<double> seconds;
  for (const Json& s : *found) {
    const double value = s.is_number() ? s.get<double>() : -1;
    if (!(value >= 0 && value <= kLongest))
      fail("{}: not a line of ranks: \"{}\" has something else than seconds", where, key);
    seconds.push_back(value);
  }
  return seconds;
}

}  // namespace

std::string to_json_line(const RankTimes& t) {
  return Json{{"step", t.step},
              {"steps", t.steps},
              {"busy", t.busy},
              {"waited", t.waited},
              {"data_wait", t.data_wait}}
      .dump();
}

RankTimes parse_rank_times(std::string_view line, const std::string& where) {
  const Json j = parse_object_line(line, "line of ranks", 2, where);
  RankTimes t{.step = count_at(j, "step", where),
              .steps = count_at(j, "steps", where),
              .busy = seconds_at(j, "busy", where),
              .waited = seconds_at(j, "waited", where),
              .data_wait = seconds_at(j, "data_wait", where)};
  if (t.steps > t.step) fail("{}: not a line of ranks: a window longer than the run", where);
  if (t.waited.size() != t.busy.size() || t.data_wait.size() != t.busy.size())
    fail("{}: not a line of ranks: not as many numbers of each kind", where);
  return t;
}

std::vector<RankTimes> read_rank_times(FileSystem& fs, const std::string& path) {
  std::vector<RankTimes> all;
  if (!fs.exists(path)) return all;
  read_lines(fs, path, [&](std::string_view line, const std::string& where) {
    all.push_back(parse_rank_times(line, where));
  });
  return all;
}

}  // namespace ingot
