// `ingot rollouts`: what a policy replied in a step of reinforcement learning, and what each reply taught;
// how each environment and difficulty went over the steps.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/text_io.h"
#include "base/enum.h"
#include "base/error.h"
#include "base/terminal_text.h"
#include "post/rl/rollout_counts.h"

namespace ingot {
namespace {

enum class Colour : uint8_t { automatic, always, never };
constexpr auto enum_names(Colour) {
  return names_in_order<Colour>("auto", "always", "never");
}

struct RolloutsArguments {
  std::string run, colour = "auto";
  int64_t step = 0, group = -1;
  JsonOption json;
};

/// Green where the reply was made likelier, red where it was made less likely: the stronger, the more. Tokens
/// that the budget forced are grey; unlikely tokens (below one in ten) are underlined.
std::string coloured(const RolloutLine& line, double strongest) {
  const double strength = strongest > 0 ? std::abs(line.advantage) / strongest : 0;
  const int level = strength > 0.66 ? 2 : strength > 0.1 ? 1 : 0;
  static constexpr const char* kGood[] = {"", "\x1b[32m", "\x1b[1;32m"};
  static constexpr const char* kBad[] = {"", "\x1b[31m", "\x1b[1;31m"};
  const std::string own = line.advantage > 0 ? kGood[level] : kBad[level];
  std::string text;
  for (size_t t = 0; t < line.tokens.size(); ++t) {
    const bool forced = std::binary_search(line.forced.begin(), line.forced.end(), static_cast<int64_t>(t));
    const bool unlikely = !forced && line.logprob[t] < std::log(0.1);
    text += forced ? "\x1b[2m" : own;
    if (unlikely) text += "\x1b[4m";
    text += terminal_text(line.tokens[t]) + "\x1b[0m";
  }
  return text;
}

std::string shown(const std::vector<RolloutLine>& lines, bool colours) {
  double strongest = 0;
  for (const RolloutLine& l : lines) strongest = std::max(strongest, std::abs(l.advantage));
  std::string text;
  int64_t group = -1;
  for (const RolloutLine& l : lines) {
    if (l.group != group)
      text += fmt::format("{}group {}  {}  difficulty {}\n{}\n", group < 0 ? "" : "\n", l.group, l.problem,
                          l.difficulty, text_for(STDOUT_FILENO, l.prompt));
    group = l.group;
    text += fmt::format("\nreply {}  reward {:g}{}  advantage {:+.3f}  {} tokens, {}{}\n", l.sample, l.reward,
                        l.bonus == 0 ? "" : fmt::format(" {:+.3f}", l.bonus), l.advantage, l.tokens.size(),
                        l.finish, l.note.empty() ? "" : "  (" + text_for(STDOUT_FILENO, l.note) + ")");
    text += (colours ? coloured(l, strongest) : text_for(STDOUT_FILENO, l.text)) + "\n";
  }
  return text;
}

std::string rollouts_json(const std::vector<RolloutLine>& lines) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RolloutLine& l : lines) list.push_back(nlohmann::ordered_json::parse(to_json_line(l)));
  return json_text(list, 2);
}

void show_rollouts(const RolloutsArguments& o) {
  FileSystem& fs = real_file_system();
  const std::string path = o.run + "/" + kRolloutsFile;
  if (!fs.exists(path))
    throw Error(fmt::format("'{}' has no {}", o.run, kRolloutsFile),
                "name the folder of a run with a phase of kind rl (docs/rl.md) that has made a step");
  const std::vector<int64_t> steps = rollout_steps(fs, path);
  if (steps.empty()) throw Error(fmt::format("'{}' has no complete line", path), "let the run make a step");
  const int64_t step = o.step > 0 ? o.step : steps.back();
  std::vector<RolloutLine> lines = read_rollouts(fs, path, step);
  if (lines.empty())
    throw Error(fmt::format("'{}' has no replies of step {}", path, step),
                fmt::format("it has steps {} to {}{}", steps.front(), steps.back(),
                            steps.size() < 20 ? fmt::format(": {}", fmt::join(steps, " ")) : ""));
  if (o.group >= 0) std::erase_if(lines, [&](const RolloutLine& l) { return l.group != o.group; });
  if (lines.empty()) throw Error(fmt::format("step {} has no group {}", step, o.group), "leave --group out");
  const Colour colour = enum_from<Colour>(o.colour, "--colour");
  const bool colours =
      colour == Colour::always || (colour == Colour::automatic && isatty(STDOUT_FILENO) != 0);
  o.json.print(shown(lines, colours), rollouts_json(lines));
}

constexpr size_t kParts = 4;  ///< of the recorded steps, to see how pass rates change

/// One environment at one difficulty, over all steps and over quarters of them.
struct RolloutStatistics {
  RolloutCounts all;
  std::array<RolloutCounts, kParts> parts;
};

/// First steps of the parts, and the last step.
std::array<int64_t, kParts + 1> parts_of_steps(const std::vector<RolloutCounts>& lines) {
  int64_t first = lines.front().step, last = first;
  for (const RolloutCounts& c : lines) first = std::min(first, c.step), last = std::max(last, c.step);
  std::array<int64_t, kParts + 1> bounds{};
  for (size_t i = 0; i < kParts; ++i)
    bounds[i] = first + (last - first + 1) * static_cast<int64_t>(i) / static_cast<int64_t>(kParts);
  bounds[kParts] = last;
  return bounds;
}

/// By environment and difficulty.
std::vector<RolloutStatistics> statistics_of(const std::vector<RolloutCounts>& lines) {
  const auto bounds = parts_of_steps(lines);
  std::map<std::pair<std::string, int64_t>, RolloutStatistics> found;
  for (const RolloutCounts& c : lines) {
    RolloutStatistics& s = found[{c.environment, c.difficulty}];
    s.all.environment = c.environment, s.all.difficulty = c.difficulty;
    s.all.add(c);
    size_t part = kParts - 1;
    while (part > 0 && c.step < bounds[part]) --part;
    s.parts[part].add(c);
  }
  std::vector<RolloutStatistics> list;
  for (auto& [key, s] : found) list.push_back(std::move(s));
  return list;
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string statistics_text(const std::vector<RolloutStatistics>& list,
                            const std::array<int64_t, kParts + 1>& bounds) {
  size_t width = std::string("environment").size();
  for (const RolloutStatistics& s : list) width = std::max(width, s.all.environment.size());
  std::string text = fmt::format(
      "{:<{}} {:>10} {:>7} {:>9} {:>10} {:>7} {:>10} {:>7}   pass rate from step\n", "environment", width,
      "difficulty", "groups", "pass rate", "no signal", "tokens", "truncated", "failed");
  text += std::string(width + 70, ' ');
  for (size_t i = 0; i < kParts; ++i) text += fmt::format(" {:>6}", bounds[i]);
  text += "\n";
  for (const RolloutStatistics& s : list) {
    text += fmt::format("{:<{}} {:>10} {:>7} {:>9.3f} {:>8.0f} % {:>7.1f} {:>8.1f} % {:>7}  ",
                        text_for(STDOUT_FILENO, s.all.environment), width, s.all.difficulty, s.all.groups,
                        s.all.pass_rate(), 100 * share(s.all.without_signal, s.all.groups),
                        share(s.all.tokens, s.all.replies), 100 * share(s.all.truncated, s.all.replies),
                        s.all.failed);
    for (const RolloutCounts& c : s.parts)
      text += c.replies > c.failed ? fmt::format(" {:>6.3f}", c.pass_rate()) : fmt::format(" {:>6}", "-");
    text += "\n";
  }
  return text;
}

std::string statistics_json(const std::vector<RolloutStatistics>& list,
                            const std::array<int64_t, kParts + 1>& bounds) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const auto rate = [](const RolloutCounts& c) {
    return c.replies > c.failed ? nlohmann::ordered_json(c.pass_rate()) : nlohmann::ordered_json(nullptr);
  };
  for (const RolloutStatistics& s : list) {
    nlohmann::ordered_json over = nlohmann::ordered_json::array();
    for (const RolloutCounts& c : s.parts) over.push_back(rate(c));
    rows.push_back({{"environment", s.all.environment},
                    {"difficulty", s.all.difficulty},
                    {"groups", s.all.groups},
                    {"without_signal", s.all.without_signal},
                    {"replies", s.all.replies},
                    {"failed", s.all.failed},
                    {"pass_rate", rate(s.all)},
                    {"tokens_per_reply", share(s.all.tokens, s.all.replies)},
                    {"truncated", s.all.truncated},
                    {"pass_rate_over_steps", over}});
  }
  return json_text({{"first_steps", std::vector<int64_t>(bounds.begin(), bounds.end() - 1)},
                    {"last_step", bounds.back()},
                    {"rows", rows}},
                   2);
}

void show_statistics(const std::string& run, const JsonOption& json) {
  FileSystem& fs = real_file_system();
  const std::string path = run + "/" + kRolloutCountsFile;
  if (!fs.exists(path))
    throw Error(fmt::format("'{}' has no {}", run, kRolloutCountsFile),
                "name the folder of a run with a phase of kind rl (docs/rl.md) that has made a step");
  const std::vector<RolloutCounts> lines = read_rollout_counts(fs, path);
  if (lines.empty()) throw Error(fmt::format("'{}' has no complete line", path), "let the run make a step");
  const std::vector<RolloutStatistics> list = statistics_of(lines);
  json.print(statistics_text(list, parts_of_steps(lines)), statistics_json(list, parts_of_steps(lines)));
}

void add_statistics_command(CLI::App& app, int& code) {
  CLI::App* c =
      app.add_subcommand("statistics", "pass rates, lengths and groups by environment and difficulty");
  const auto run = std::make_shared<std::string>();
  const auto json = std::make_shared<JsonOption>();
  c->add_option("run", *run, "run folder")->required();
  add_json_option(*c, *json);
  c->footer(
      "All groups that were sampled count, also those without signal: replies of one reward teach nothing.\n"
      "Pass rates on the right are of four equal parts of the steps, each from the step above it.\n"
      "Example:\n  ingot rollouts statistics runs/reasoner");
  c->callback([=, &code] {
    show_statistics(*run, *json);
    code = 0;
  });
}

}  // namespace

void add_rollouts_command(CLI::App& app, int& code) {
  CLI::App* c = app.add_subcommand("rollouts", "replies of reinforcement learning, and what they taught");
  c->require_subcommand(1);
  CLI::App* show = c->add_subcommand("show", "the replies of a step, coloured by their advantage");
  const auto o = std::make_shared<RolloutsArguments>();
  show->add_option("run", o->run, "run folder")->required();
  show->add_option("--step", o->step, "of the run (default: the last that was recorded)")
      ->check(in(between(1, bounds::kSteps)));
  show->add_option("--group", o->group, "only this group of the step")->check(in(between(0, 65535)));
  show->add_option("--colour", o->colour, "auto (on a terminal), always or never");
  add_json_option(*show, o->json);
  show->footer(
      "Green replies were made likelier, red ones less likely; grey tokens were forced by a budget,\n"
      "underlined ones had a probability below one in ten.\n"
      "Examples:\n  ingot rollouts show runs/reasoner --step 40\n"
      "  ingot rollouts show runs/reasoner --json | python3 -m json.tool");
  show->callback([=, &code] {
    show_rollouts(*o);
    code = 0;
  });
  add_statistics_command(*c, code);
}

}  // namespace ingot
