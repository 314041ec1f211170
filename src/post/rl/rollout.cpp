// See rollout.h.
#include "post/rl/rollout.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "post/rl/advantage.h"
#include "report/json_lines.h"

namespace ingot {
namespace {

using Ordered = nlohmann::ordered_json;

/// JSON has no bytes: what is no UTF-8 becomes U+FFFD.
std::string dump_line(const Ordered& j) {
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Ordered parts_json(const std::vector<environments::RewardPart>& parts) {
  Ordered j = Ordered::object();
  for (const environments::RewardPart& p : parts) j[p.name] = p.value;
  return j;
}

std::vector<environments::RewardPart> parts_of(const Ordered& j) {
  std::vector<environments::RewardPart> parts;
  for (const auto& [name, value] : j.items()) parts.push_back({name, value.get<double>()});
  return parts;
}

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float v : values) bits.push_back(std::bit_cast<uint32_t>(v));
  return bits;
}

std::vector<float> floats_of_bits(const std::vector<uint32_t>& bits) {
  std::vector<float> values;
  for (const uint32_t b : bits) values.push_back(std::bit_cast<float>(b));
  return values;
}

}  // namespace

int64_t Rollout::drawn() const {
  return length() - std::count(forced.begin(), forced.end(), true);
}

std::vector<double> RolloutGroup::rewards() const {
  std::vector<double> values;
  for (const Rollout& r : rollouts)
    if (!r.left_out) values.push_back(r.reward);
  return values;
}

std::vector<double> RolloutGroup::bonuses() const {
  std::vector<double> values;
  for (const Rollout& r : rollouts)
    if (!r.left_out) values.push_back(r.bonus);
  return values;
}

double RolloutGroup::pass_rate() const {
  const std::vector<double> values = rewards();
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

bool RolloutGroup::signal() const {
  return has_signal(rewards());
}

std::string to_json_line(const RolloutLine& line) {
  const Ordered j = {{"step", line.step},           {"group", line.group},
                     {"sample", line.sample},       {"environment", line.environment},
                     {"problem", line.problem},     {"difficulty", line.difficulty},
                     {"reward", line.reward},       {"bonus", line.bonus},
                     {"advantage", line.advantage}, {"parts", parts_json(line.parts)},
                     {"finish", line.finish},       {"answer", line.answer},
                     {"note", line.note},           {"prompt", line.prompt},
                     {"text", line.text},           {"tokens", line.tokens},
                     {"logprob", line.logprob},     {"forced", line.forced}};
  return dump_line(j);
}

RolloutLine parse_rollout_line(std::string_view text, const std::string& where) {
  try {
    const auto j = Ordered::parse(text);
    RolloutLine line;
    const auto whole = [&where](const Ordered& value) {
      if (!value.is_number_integer()) fail("{}: {} is no whole number", where, value.dump());
      return value.get<int64_t>();
    };
    line.step = whole(j.at("step")), line.group = whole(j.at("group")), line.sample = whole(j.at("sample"));
    line.environment = j.at("environment"), line.problem = j.at("problem");
    line.difficulty = whole(j.at("difficulty"));
    line.reward = j.at("reward"), line.bonus = j.at("bonus"), line.advantage = j.at("advantage");
    line.parts = parts_of(j.at("parts"));
    line.finish = j.at("finish"), line.answer = j.at("answer"), line.note = j.at("note");
    line.prompt = j.at("prompt"), line.text = j.at("text");
    line.tokens = j.at("tokens").get<std::vector<std::string>>();
    line.logprob = j.at("logprob").get<std::vector<float>>();
    for (const auto& place : j.at("forced")) line.forced.push_back(whole(place));
    if (line.tokens.size() != line.logprob.size())
      fail("{}: {} tokens with {} log-probabilities", where, line.tokens.size(), line.logprob.size());
    return line;
  } catch (const nlohmann::json::exception& e) {
    fail("{}: no line of a rollout: {}", where, e.what());
  }
}

std::vector<RolloutLine> read_rollouts(FileSystem& fs, const std::string& path, int64_t step) {
  std::vector<RolloutLine> lines;
  read_lines(fs, path, [&](std::string_view text, const std::string& where) {
    RolloutLine line = parse_rollout_line(text, where);
    if (line.step == step) lines.push_back(std::move(line));
  });
  return lines;
}

std::vector<int64_t> rollout_steps(FileSystem& fs, const std::string& path) {
  std::vector<int64_t> steps;
  read_lines(fs, path, [&](std::string_view text, const std::string& where) {
    const int64_t step = parse_rollout_line(text, where).step;
    if (steps.empty() || steps.back() != step) steps.push_back(step);
  });
  return steps;
}

std::string groups_json(const std::vector<RolloutGroup>& groups) {
  Ordered list = Ordered::array();
  for (const RolloutGroup& g : groups) {
    Ordered rollouts = Ordered::array();
    for (const Rollout& r : g.rollouts)
      rollouts.push_back({{"ids", r.ids},
                          {"recorded", bits_of(r.recorded)},
                          {"forced", r.forced},
                          {"kept", r.kept},
                          {"kept_counts", r.kept_counts},
                          {"routes", r.routes},
                          {"text", r.text},
                          {"thinking", r.thinking_tokens},
                          {"finish", static_cast<int>(r.finish)},
                          {"weights", r.weights},
                          {"reward", r.reward},
                          {"bonus", r.bonus},
                          {"advantage", r.advantage},
                          {"compression", r.compression},
                          {"parts", parts_json(r.parts)},
                          {"answer", r.answer},
                          {"note", r.note},
                          {"left_out", r.left_out}});
    list.push_back(
        {{"problem", g.problem.id()}, {"prompt", g.prompt}, {"routes", g.routes}, {"rollouts", rollouts}});
  }
  return dump_line(list);
}

std::vector<RolloutGroup> parse_groups(const std::string& text, const std::string& where) {
  try {
    std::vector<RolloutGroup> groups;
    for (const auto& j : Ordered::parse(text)) {
      RolloutGroup& g = groups.emplace_back();
      g.problem = environments::problem_of(j.at("problem"));
      g.prompt = j.at("prompt").get<std::vector<int32_t>>();
      g.routes = j.at("routes").get<std::vector<uint8_t>>();
      for (const auto& one : j.at("rollouts")) {
        Rollout& r = g.rollouts.emplace_back();
        r.ids = one.at("ids").get<std::vector<int32_t>>();
        r.recorded = floats_of_bits(one.at("recorded").get<std::vector<uint32_t>>());
        r.forced = one.at("forced").get<std::vector<bool>>();
        r.kept = one.at("kept").get<std::vector<int32_t>>();
        r.kept_counts = one.at("kept_counts").get<std::vector<int32_t>>();
        r.routes = one.at("routes").get<std::vector<uint8_t>>();
        r.text = one.at("text"), r.thinking_tokens = one.at("thinking");
        r.finish = static_cast<FinishReason>(one.at("finish").get<int>());
        r.weights = one.at("weights");
        r.reward = one.at("reward"), r.bonus = one.at("bonus"), r.advantage = one.at("advantage");
        r.compression = one.at("compression"), r.parts = parts_of(one.at("parts"));
        r.answer = one.at("answer"), r.note = one.at("note"), r.left_out = one.at("left_out");
        if (r.recorded.size() != r.ids.size() || r.forced.size() != r.ids.size())
          fail("{}: {} tokens of a reply with {} log-probabilities", where, r.ids.size(), r.recorded.size());
        if (std::accumulate(r.kept_counts.begin(), r.kept_counts.end(), size_t{0}) != r.kept.size())
          fail("{}: the ids that tokens of a reply were drawn from are {}, not as many as counted", where,
               r.kept.size());
      }
    }
    return groups;
  } catch (const nlohmann::json::exception& e) {
    fail("{}: the replies of a batch are damaged: {}", where, e.what());
  }
}

}  // namespace ingot
