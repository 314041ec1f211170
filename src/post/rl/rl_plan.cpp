// See rl_plan.h.
#include "post/rl/rl_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file_system.h"
#include "base/progress.h"
#include "report/table.h"

namespace ingot {
namespace {

std::string flops_text(double flops) {
  return flops < 1e18 ? fmt::format("{:.4g} PFLOP", flops * 1e-15)
                      : fmt::format("{} PFLOP", group_digits(std::llround(flops * 1e-15)));
}

/// Rows of an environment that is a file; 0: it makes its problems, or nobody knows.
int64_t rows_of(const RlEnvironmentConfig& e) {
  if (!e.name.ends_with(".jsonl") || !real_file_system().exists(e.name)) return e.rows;
  const std::string text = real_file_system().read(e.name);
  int64_t rows = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    rows += text.substr(at, end - at).find_first_not_of(" \t\r") != std::string::npos ? 1 : 0;
    at = end + 1;
  }
  return rows;
}

/// Prompts of a phase, with those of the phases that it continues.
int64_t prompts_until(const Recipe& recipe, size_t phase) {
  const PhaseConfig& p = recipe.phases[phase];
  const int64_t own = p.steps / p.rl->updates_per_batch * p.rl->prompts;
  const bool continues = p.continues && phase > 0 && recipe.phases[phase - 1].rl;
  return own + (continues ? prompts_until(recipe, phase - 1) : 0);
}

/// How often the rows of files are asked, and how many problems each environment makes that makes its own.
std::vector<std::string> describe_prompts(const RlConfig& c, int64_t prompts) {
  int64_t rows = 0, files = 0;
  double weight = 0, file_weight = 0;
  for (const RlEnvironmentConfig& e : c.environments) {
    const int64_t count = rows_of(e);
    rows += count, files += count > 0 ? 1 : 0;
    weight += e.weight, file_weight += count > 0 ? e.weight : 0;
  }
  const auto asked = [&](double of) { return static_cast<double>(prompts) * of / weight; };
  std::vector<std::string> lines;
  if (files > 0)
    lines.push_back(fmt::format("prompts: {} of {} rows in {}, {:.2f} epochs",
                                group_digits(std::llround(asked(file_weight))), group_digits(rows),
                                count_of(files, "file"), asked(file_weight) / static_cast<double>(rows)));
  for (const RlEnvironmentConfig& e : c.environments)
    if (const int64_t count = rows_of(e); count > 0 && files > 1)
      lines.push_back(fmt::format("  {}: {:.1f} %, {} rows, {:.2f} epochs", e.name, 100 * e.weight / weight,
                                  group_digits(count), asked(e.weight) / static_cast<double>(count)));
  const int64_t made = static_cast<int64_t>(c.environments.size()) - files;
  if (made > 0)
    lines.push_back(fmt::format("prompts: {} new problems of {}",
                                group_digits(std::llround(asked(weight - file_weight))),
                                count_of(made, "environment")));
  if (c.aggregation.share > 0)
    lines.push_back(fmt::format("  {:.1f} % show {}, tails of {} tokens", 100 * c.aggregation.share,
                                count_of(c.aggregation.candidates, "candidate"),
                                group_digits(c.aggregation.tail)));
  return lines;
}

/// "232 + 400 steps of 128 x 16 replies": the phases of kind rl, those that continue another counted in it.
std::string all_phases(const Recipe& recipe) {
  std::vector<int64_t> steps;
  int64_t total = 0;
  for (const PhaseConfig& p : recipe.phases) {
    if (p.kind != "rl") continue;
    if (p.continues && !steps.empty())
      steps.back() += p.steps;
    else
      steps.push_back(p.steps);
    total += p.steps;
  }
  if (steps.size() < 2) return "";
  std::string text;
  for (const int64_t s : steps) text += (text.empty() ? "" : " + ") + group_digits(s);
  return fmt::format("all of kind rl: {} = {} steps", text, group_digits(total));
}

bool is_last_rl(const Recipe& recipe, size_t phase) {
  for (size_t i = phase + 1; i < recipe.phases.size(); ++i)
    if (recipe.phases[i].kind == "rl") return false;
  return true;
}

}  // namespace

int64_t route_bytes(const ModelConfig& model, int64_t moe_layers, int64_t tokens) {
  return tokens * moe_layers * model.moe.top_k;
}

PlannedRows rows_of_replies(int64_t groups, int64_t size, int64_t max_tokens, int64_t mean,
                            int64_t sequence) {
  const int64_t reply = mean > 0 ? mean : max_tokens;
  const int64_t group = size * (reply + reply / 4);
  // Rows are nearly full of short sequences, and hold a whole number of the longest.
  if (mean > 0) return {.rows = (groups * group + sequence - 1) / sequence};
  const int64_t each = std::max<int64_t>(1, sequence / group);
  return {.rows = (groups + each - 1) / each, .longest = true};
}

PhaseWords describe_rl(const Recipe& recipe, size_t phase, const PhaseWork& work) {
  const PhaseConfig& p = recipe.phases[phase];
  const RlConfig& c = *p.rl;
  const int64_t batches = p.steps / c.updates_per_batch, replies = batches * c.prompts * c.samples;
  PhaseWords words;
  words.consumes = fmt::format("{} x {} replies of at most {} tokens, in rows of {}", c.prompts, c.samples,
                               group_digits(c.max_tokens), group_digits(p.sequence));
  const auto most = static_cast<double>(replies * c.max_tokens);
  words.lines.push_back(
      c.reply_tokens > 0
          ? fmt::format("{} replies, {} tokens at {} each, at most {}", group_digits(replies),
                        format_count(static_cast<double>(replies * c.reply_tokens)),
                        group_digits(c.reply_tokens), format_count(most))
          : fmt::format("{} replies, at most {} tokens", group_digits(replies), format_count(most)));
  for (std::string& line : describe_prompts(c, prompts_until(recipe, phase)))
    words.lines.push_back(std::move(line));
  if (c.replay.rows > 0)
    words.lines.push_back(
        fmt::format("beside them {} of text a step, {} tokens", count_of(c.replay.rows, "row"),
                    format_count(static_cast<double>(p.steps * c.replay.rows * p.sequence))));
  words.lines.push_back(fmt::format("work where {} and its prompt a quarter: {} in training, {} in sampling",
                                    c.reply_tokens > 0
                                        ? fmt::format("a reply has {} tokens", group_digits(c.reply_tokens))
                                        : "every reply is as long",
                                    flops_text(work.training_flops), flops_text(work.source_flops)));
  std::string memory = fmt::format("sampling: up to {} of keys and values",
                                   format_bytes(static_cast<double>(c.cache_mib) * 0x1p20));
  if (work.moe_layers > 0)
    memory += fmt::format(
        "; routes of a reply {:.1f} MB{}",
        static_cast<double>(route_bytes(recipe.model, work.moe_layers, c.max_tokens)) * 1e-6,
        c.updates_per_batch > 1 ? ", kept for its later updates" : ", not kept: one update chooses the same");
  words.lines.push_back(std::move(memory));
  if (is_last_rl(recipe, phase))
    if (std::string all = all_phases(recipe); !all.empty()) words.lines.push_back(std::move(all));
  return words;
}

}  // namespace ingot
