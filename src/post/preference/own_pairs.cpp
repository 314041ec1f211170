// See own_pairs.h.
#include "post/preference/own_pairs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/progress.h"
#include "data/sequence_rows.h"
#include "post/objectives/preference_loss.h"
#include "post/preference/preference_metrics.h"
#include "post/rl/share_rollouts.h"
#include "train/prepare.h"

namespace ingot {
namespace {

/// Problems that are asked together: enough for full forward passes, few enough to show progress.
constexpr int64_t kAskedTogether = 32;

/// What is asked in the phase: environments in turn, their difficulties drawn evenly.
class Asker {
 public:
  explicit Asker(const SourceContext& context)
      : context_(context),
        random_(static_cast<uint64_t>(context.recipe().run.seed), RandomPurpose::mixture,
                hash64("own pairs " + context.config().name)) {
    for (const OwnPairsEnvironmentConfig& c : context.config().own_pairs->environments) {
      Environment& e = environments_.emplace_back();
      e.environment = environments::find_environment(c.name);
      const environments::DifficultyRange all = e.environment->difficulty();
      e.least = c.least.value_or(all.least), e.most = c.most.value_or(all.most);
      if (e.least < all.least || e.most > all.most || e.least > e.most)
        throw Error(fmt::format("own_pairs.environments: '{}' has difficulties {} to {}, found {} to {}",
                                c.name, all.least, all.most, e.least, e.most),
                    "narrow `least` and `most`");
    }
  }

  RolloutGroup group(int64_t i, const RolloutSampler& sampler) const {
    const Environment& e = environments_[static_cast<size_t>(i) % environments_.size()];
    const int64_t number = context_.sampler.first_step() * kProblemsPerStep + i;
    const auto span = static_cast<uint64_t>(e.most - e.least + 1);
    RolloutGroup g;
    g.draw.difficulty = e.least + static_cast<int64_t>(random_.below(static_cast<uint64_t>(i), span));
    g.problem = e.environment->make(seed() % environments::kHeldOutSeeds, static_cast<uint64_t>(number),
                                    g.draw.difficulty);
    g.key = hash64(fmt::format("own pairs {} {}", number, context_.sampler.phase()));
    sampler.ask(g, thinking_switch(context_.config().own_pairs->thinking, i));
    return g;
  }

 private:
  struct Environment {
    environments::EnvironmentPointer environment;
    int64_t least = 0, most = 0;
  };
  uint64_t seed() const { return static_cast<uint64_t>(context_.recipe().run.seed); }
  const SourceContext& context_;
  const Random random_;
  std::vector<Environment> environments_;
};

RolloutOptions pair_options(const SourceContext& context) {
  const OwnPairsConfig& c = *context.config().own_pairs;
  RolloutOptions o;
  o.samples = c.samples, o.max_tokens = c.max_tokens;
  o.sampling.seed = static_cast<uint64_t>(context.recipe().run.seed);
  o.positions = std::min(context.config().sequence, context.engine.model().config().context);
  o.cache_bytes = c.cache_mib << 20;
  return o;
}

/// What asking gave, for the log and for an error that says what is wrong.
struct Tally {
  int64_t problems = 0, replies = 0, cut = 0, not_judged = 0, too_long = 0, all_solved = 0, none_solved = 0;
  double reward = 0;  ///< summed over judged replies

  void add(const RolloutGroup& g) {
    ++problems;
    bool any = false, all = true;
    for (const Rollout& r : g.rollouts) {
      ++replies;
      cut += r.truncated() ? 1 : 0;
      not_judged += r.left_out ? 1 : 0;
      if (r.left_out) continue;
      reward += r.reward;
      any |= r.reward >= 1, all &= r.reward >= 1;
    }
    all_solved += any && all ? 1 : 0;
    none_solved += any ? 0 : 1;
  }
  std::string str(size_t pairs) const {
    return fmt::format(
        "{} pairs of {} problems ({} solved by every reply, {} by none), mean reward {:.3f}; of {} replies "
        "{} "
        "were cut and {} not judged; {} pairs were longer than a row",
        pairs, problems, all_solved, none_solved,
        reward / static_cast<double>(std::max<int64_t>(1, replies - not_judged)), replies, cut, not_judged,
        too_long);
  }
};

/// A reply behind its prompt.
struct PairSide {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> in_loss;
  std::vector<float> reference;

  PairSide(const RolloutGroup& group, const Rollout& r) : tokens(group.prompt) {
    const size_t prompt = tokens.size();
    tokens.insert(tokens.end(), r.ids.begin(), r.ids.end());
    in_loss.assign(tokens.size(), 0);
    reference.assign(tokens.size(), 0);
    for (size_t t = 0; t < r.ids.size(); ++t) {
      in_loss[prompt + t] = !r.forced[t];
      reference[prompt + t] = r.forced[t] ? 0 : r.recorded[t];
    }
  }
};

/// The mean log-probability of the tokens that were drawn.
double mean_logprob(const Rollout& r) {
  double sum = 0, count = 0;
  for (size_t t = 0; t < r.ids.size(); ++t)
    if (!r.forced[t]) sum += r.recorded[t], ++count;
  return count > 0 ? sum / count : 0;
}

}  // namespace

std::vector<Rollout> pair_of(const RolloutGroup& group) {
  const Rollout *best = nullptr, *worst = nullptr;
  const auto less = [](const Rollout& a, const Rollout& b) {
    return a.reward != b.reward ? a.reward < b.reward : mean_logprob(a) < mean_logprob(b);
  };
  for (const Rollout& r : group.rollouts) {
    if (r.left_out || r.truncated()) continue;
    if (best == nullptr || less(*best, r)) best = &r;
    if (worst == nullptr || less(r, *worst)) worst = &r;
  }
  if (best == nullptr || best->reward <= worst->reward) return {};
  return {*best, *worst};
}

bool OwnPairsSource::has_reference() const {
  return needs_reference(context_.config().preference->loss);
}

std::string OwnPairsSource::path() const {
  return fmt::format("{}/reference/phase-{}.pairs.json", context_.recipe().run.folder,
                     context_.sampler.phase() + 1);
}

void OwnPairsSource::make() {
  const OwnPairsConfig& c = config();
  const chat::ChatTemplate chat_template = require_chat_template(context_.fs, context_.recipe());
  const RolloutSampler sampler(context_.engine.model(), context_.data.tokenizer, chat_template,
                               pair_options(context_));
  const Asker asker(context_);
  Tally tally;
  RolloutCost cost;
  Progress progress("replies for pairs", c.problems);
  for (int64_t first = 0; first < c.problems; first += kAskedTogether) {
    std::vector<RolloutGroup> groups;
    for (int64_t i = first; i < std::min(c.problems, first + kAskedTogether); ++i)
      groups.push_back(asker.group(i, sampler));
    sample_on_data_ranks(context_.engine, sampler, groups, cost);
    for (RolloutGroup& g : groups) {
      tally.add(g);
      std::vector<Rollout> pair = pair_of(g);
      if (pair.empty()) continue;
      const auto tokens = static_cast<int64_t>(2 * g.prompt.size() + pair[0].ids.size() + pair[1].ids.size());
      if (tokens > context_.config().sequence) {
        ++tally.too_long;
        continue;
      }
      // Which number the run gives the weights depends on where it was resumed, and nothing reads it.
      for (Rollout& r : pair) r.weights = 0;
      g.rollouts = std::move(pair);
      pairs_.push_back(std::move(g));
    }
    progress.update(std::min(c.problems, first + kAskedTogether));
  }
  progress.finish();
  if (pairs_.empty())
    throw Error(fmt::format("own_pairs: phase '{}' has no pair to learn from: {}", context_.config().name,
                            tally.str(0)),
                "where nothing is solved make the problems easier, or train longer before; where all is "
                "solved make them harder; or raise own_pairs.samples, problems or the phase's sequence");
  if (context_.engine.ranks().leads())
    log::info("phase '{}': {}", context_.config().name, tally.str(pairs_.size()));
}

void OwnPairsSource::keep() {
  const std::string text = groups_json(pairs_);
  hash_ = hash128_hex(text.data(), text.size());
  if (!context_.engine.ranks().leads()) return;
  context_.fs.create_folders(path().substr(0, path().rfind('/')));
  write_file_atomically(context_.fs, path(), text);
}

void OwnPairsSource::read() {
  constexpr const char* kBack =
      "copy it back; or go back to the end of the phase before it, where pairs are made anew: ingot run RUN "
      "--from STEP";
  if (!context_.fs.exists(path()))
    throw Error(fmt::format("'{}' is gone: the pairs that the phase trains on", path()), kBack);
  const std::string text = context_.fs.read(path());
  if (hash128_hex(text.data(), text.size()) != hash_)
    throw Error(fmt::format("'{}' is not what the run had when it wrote '{}'", path(), restored_where_),
                kBack);
  pairs_ = parse_groups(text, path());
}

data::Batch OwnPairsSource::next(int64_t step) {
  if (pairs_.empty() && !hash_.empty()) read();
  if (pairs_.empty()) {
    make();
    keep();
  }
  // Every pair comes once before any comes again: pass p over them has an order of its own.
  const auto count = static_cast<int64_t>(pairs_.size());
  const int64_t begin = (step - context_.sampler.first_step()) * config().pairs;
  std::vector<PairSide> sides;
  std::vector<int64_t> order;
  int64_t pass = -1;
  for (int64_t n = begin; n < begin + config().pairs; ++n) {
    if (n / count != pass) {
      pass = n / count;
      const Random random(static_cast<uint64_t>(context_.recipe().run.seed), RandomPurpose::mixture,
                          hash64(fmt::format("order of own pairs {} {}", context_.sampler.phase(), pass)));
      order.resize(static_cast<size_t>(count));
      std::iota(order.begin(), order.end(), int64_t{0});
      for (int64_t i = count - 1; i > 0; --i)
        std::swap(order[static_cast<size_t>(i)],
                  order[random.below(static_cast<uint64_t>(i), static_cast<uint64_t>(i + 1))]);
    }
    const RolloutGroup& g = pairs_[static_cast<size_t>(order[static_cast<size_t>(n % count)])];
    for (const Rollout& r : g.rollouts) sides.emplace_back(g, r);
  }
  std::vector<data::TokenSequence> views;
  for (const PairSide& s : sides) {
    data::TokenSequence& v = views.emplace_back();
    v.tokens = s.tokens, v.in_loss = s.in_loss;
    if (has_reference()) v.reference = s.reference;
  }
  data::Batch batch = data::pack_sequences(
      views,
      {.budget = context_.config().sequence, .rows_multiple = context_.recipe().data_ranks(), .group = 2});
  batch.divisor = static_cast<double>(config().pairs);
  return batch;
}

void OwnPairsSource::observe(const StepOutcome& outcome, MetricRow& row) {
  add_preference_metrics(outcome, has_reference(), row);
}

std::string OwnPairsSource::state() const {
  return nlohmann::json{{"pairs", hash_}}.dump();
}

void OwnPairsSource::restore(const std::string& state, const std::string& where) {
  const auto j = nlohmann::json::parse(state, nullptr, false);
  if (!j.is_object() || !j.contains("pairs") || !j["pairs"].is_string())
    fail("'{}': the state 'source' is damaged", where);
  hash_ = j["pairs"].get<std::string>();
  restored_where_ = where;
}

}  // namespace ingot
