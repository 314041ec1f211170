// See reason_results.h.
#include "report/reason_results.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "report/json_lines.h"
#include "report/run_record.h"

namespace ingot {
namespace {

using ReasonJson = nlohmann::ordered_json;

/// A finite number of at least `least`.
double amount_of(const ReasonJson& json, const char* key, double least = 0) {
  const double value = json.at(key).get<double>();
  if (!std::isfinite(value) || value < least) fail("\"{}\" is {}", key, value);
  return value;
}

int64_t count_in(const ReasonJson& json, const char* key, double least) {
  const double value = amount_of(json, key, least);
  if (value != std::floor(value) || value > 0x1p52) fail("\"{}\" is {}", key, value);
  return static_cast<int64_t>(value);
}

std::optional<double> maybe(const ReasonJson& json, const char* key) {
  return json.contains(key) ? std::optional(amount_of(json, key)) : std::nullopt;
}

ReasonJson round_json(const ReasonRound& r) {
  ReasonJson json = {{"right", r.right}};
  if (r.right_error) json["right_stderr"] = *r.right_error;
  json["majority"] = r.majority;
  if (r.majority_error) json["majority_stderr"] = *r.majority_error;
  json["any"] = r.any;
  if (r.picked) json["picked"] = *r.picked;
  json["tokens"] = r.tokens, json["longest_prompt"] = r.longest_prompt;
  return json;
}

ReasonRound round_of(const ReasonJson& json) {
  return {.right = amount_of(json, "right"),
          .majority = amount_of(json, "majority"),
          .any = amount_of(json, "any"),
          .right_error = maybe(json, "right_stderr"),
          .majority_error = maybe(json, "majority_stderr"),
          .picked = maybe(json, "picked"),
          .tokens = amount_of(json, "tokens"),
          .longest_prompt = count_in(json, "longest_prompt", 0)};
}

bool same_measurement(const ReasonResult& a, const ReasonResult& b) {
  return a.name == b.name && a.problems == b.problems && a.population == b.population &&
         a.candidates == b.candidates && a.rounds.size() == b.rounds.size() && a.budget == b.budget &&
         a.tail == b.tail && a.compaction == b.compaction;
}

std::string results_path(const std::string& run_folder) {
  return run_folder + "/" + run_files::kReasoning;
}

}  // namespace

std::string to_json_line(const ReasonResult& r) {
  ReasonJson json = {{"name", r.name},
                     {"problems", r.problems},
                     {"count", r.count},
                     {"population", r.population},
                     {"candidates", r.candidates},
                     {"budget", r.budget},
                     {"tail", r.tail},
                     {"compaction", r.compaction},
                     {"prompt_bound", r.prompt_bound},
                     {"rounds", ReasonJson::array()}};
  for (const ReasonRound& round : r.rounds) json["rounds"].push_back(round_json(round));
  return json.dump(-1, ' ', false, ReasonJson::error_handler_t::replace);
}

ReasonResult parse_reason_result(std::string_view line, const std::string& where) {
  require_shallow_json(line, where);
  try {
    const ReasonJson json = ReasonJson::parse(line);
    ReasonResult r;
    r.name = json.at("name").get<std::string>(), r.problems = json.at("problems").get<std::string>();
    r.count = count_in(json, "count", 1);
    r.population = count_in(json, "population", 1), r.candidates = count_in(json, "candidates", 1);
    r.budget = count_in(json, "budget", 1), r.tail = count_in(json, "tail", 1);
    r.compaction = json.at("compaction").get<std::string>();
    r.prompt_bound = count_in(json, "prompt_bound", 0);
    for (const ReasonJson& round : json.at("rounds")) r.rounds.push_back(round_of(round));
    if (r.rounds.empty()) fail("it has no round");
    return r;
  } catch (const nlohmann::json::exception& error) {
    fail("{}: not a result of `ingot reason`: {}", where, error.what());
  } catch (const Error& error) {
    fail("{}: not a result of `ingot reason`: {}", where, error.what());
  }
}

void record_reason_result(FileSystem& fs, const std::string& run_folder, const ReasonResult& result) {
  if (!fs.exists(run_folder + "/" + run_files::kRecord))
    throw Error(fmt::format("'{}' is no run's folder", run_folder),
                "name the folder of the run whose report shall show it");
  append_line(fs, results_path(run_folder), to_json_line(result));
}

std::vector<ReasonResult> read_reason_results(FileSystem& fs, const std::string& run_folder) {
  std::vector<ReasonResult> results;
  if (!fs.exists(results_path(run_folder))) return results;
  read_lines(fs, results_path(run_folder), [&](std::string_view line, const std::string& where) {
    ReasonResult read = parse_reason_result(line, where);
    const auto before = std::find_if(results.begin(), results.end(),
                                     [&](const ReasonResult& r) { return same_measurement(r, read); });
    if (before == results.end())
      results.push_back(std::move(read));
    else
      *before = std::move(read);
  });
  return results;
}

}  // namespace ingot
