// The sections of a phase for what comes after pretraining: its optimizer, [phases.chat], [phases.preference]
// and [phases.own_pairs]. Plain settings; the code of a kind of phases registers itself (phase_kind.h).
#pragma once
#include <optional>
#include <string>

#include "optim/config.h"

namespace ingot {

/// What a phase does with the optimizer's state that the phase before it left.
enum class PhaseOptimizerState : uint8_t { keep, reset };
constexpr auto enum_names(PhaseOptimizerState) {
  return names_in_order<PhaseOptimizerState>("keep", "reset");
}

/// [phases.optimizer]: what is other than in [optimizer] for the steps of a phase.
struct PhaseOptimizerConfig {
  PhaseOptimizerState state = PhaseOptimizerState::keep;
  std::optional<double> clip, weight_decay, momentum, beta1, beta2, muon_lr_multiplier;
  template <class Visitor>
  void visit(Visitor& v) {
    v.fixed("state", state, "moments and step count at the beginning of the phase: kept, or reset to zero");
    v("clip", clip, "largest global gradient norm; 0: no clipping", up_to(1e38));
    v("weight_decay", weight_decay, "decoupled weight decay", up_to(1e6));
    v("momentum", momentum, "of Muon, all through the phase; 0: none, as in reinforcement learning",
      below_one());
    v("beta1", beta1, "AdamW: decay of the first moment", below_one());
    v("beta2", beta2, "AdamW: decay of the second moment", below_one());
    v("muon_lr_multiplier", muon_lr_multiplier, "factor on the learning rate of Muon's matrices", up_to(1e6));
  }
  bool changes() const { return clip || weight_decay || momentum || beta1 || beta2 || muon_lr_multiplier; }
  /// These settings over the recipe's.
  OptimizerConfig over(OptimizerConfig base) const;
};

/// What becomes of conversations that are longer than a row.
enum class TooLong : uint8_t { trim, drop, refuse };
constexpr auto enum_names(TooLong) {
  return names_in_order<TooLong>("trim", "drop", "refuse");
}

/// [phases.chat].
struct ChatConfig {
  TooLong too_long = TooLong::trim;
  std::string think_open = "<think>", think_close = "</think>";
  template <class Visitor>
  void visit(Visitor& v) {
    v.fixed(
        "too_long", too_long,
        "conversations longer than a sequence: reasoning is trimmed and answers never, dropped, or refused");
    v.fixed("think_open", think_open, "the token that opens reasoning, for trim");
    v.fixed("think_close", think_close, "the token that closes it");
  }
};

enum class PreferenceLoss : uint8_t { dpo, ipo, apo_zero, apo_down, kto, orpo, simpo };
constexpr auto enum_names(PreferenceLoss) {
  return names_in_order<PreferenceLoss>("dpo", "ipo", "apo_zero", "apo_down", "kto", "orpo", "simpo");
}

/// What IPO compares of a sequence: the mean over its tokens, or the sum as in the paper.
enum class PreferenceLength : uint8_t { mean, sum };
constexpr auto enum_names(PreferenceLength) {
  return names_in_order<PreferenceLength>("mean", "sum");
}

/// [phases.preference]; formulas: post/objectives/preference_loss.h.
struct PreferenceConfig {
  PreferenceLoss loss = PreferenceLoss::dpo;
  double beta = 0.1, gamma = 0.5, lambda = 0.1;
  double desirable_weight = 1, undesirable_weight = 1;
  PreferenceLength length = PreferenceLength::mean;
  bool drop_too_long = false;
  template <class Visitor>
  void visit(Visitor& v) {
    v.fixed("loss", loss, "what a pair's loss is");
    v.fixed("beta", beta, "how hard the policy is held to the reference; of simpo the scale of its margin",
            positive(1e6));
    v.fixed("gamma", gamma, "simpo: the margin that is asked for", up_to(1e6));
    v.fixed("lambda", lambda, "orpo: weight of the odds ratio beside the chosen answer's cross entropy",
            up_to(1e6));
    v.fixed("desirable_weight", desirable_weight, "kto: weight of chosen answers", up_to(1e6));
    v.fixed("undesirable_weight", undesirable_weight, "kto: weight of rejected answers", up_to(1e6));
    v.fixed("length", length, "ipo: log-ratios as means over tokens, or as sums");
    v.fixed("drop_too_long", drop_too_long,
            "pairs longer than a sequence are left out, instead of refusing the run");
  }
};

/// Whether replies reason. any: as the template says when nothing is asked.
enum class RolloutThinking : uint8_t { any, on, off, mixed };
constexpr auto enum_names(RolloutThinking) {
  return names_in_order<RolloutThinking>("any", "on", "off", "mixed");
}

/// [[phases.own_pairs.environments]]
struct OwnPairsEnvironmentConfig {
  std::string name;
  std::optional<int64_t> least, most;
  template <class Visitor>
  void visit(Visitor& v) {
    v.fixed("name", name, "of an environment (`ingot environment list`), or a .jsonl file of problems");
    v.fixed("least", least, "smallest difficulty; none: the environment's", any_integer());
    v.fixed("most", most, "largest difficulty; none: the environment's", any_integer());
  }
  void validate(ConfigErrors& e) const {
    if (name.empty()) e.add("name", "must not be empty");
    if (least && most && *least > *most)
      e.add("least", "must be at most `most` = {}, found {}", *most, *least);
  }
};

/// [phases.own_pairs] of a phase of kind "own_preference": pairs that the model makes where the phase begins.
struct OwnPairsConfig {
  std::vector<OwnPairsEnvironmentConfig> environments;
  int64_t problems = 512, samples = 8, pairs = 16, max_tokens = 128, reply_tokens = 0;
  RolloutThinking thinking = RolloutThinking::any;
  int64_t cache_mib = 512;
  template <class Visitor>
  void visit(Visitor& v) {
    v.fixed("environments", environments, "what is asked, in turn");
    v.fixed("problems", problems, "asked where the phase begins, of all environments together",
            between(1, 0x1p20));
    v.fixed("samples", samples, "replies to each; the best and the worst are a pair", between(2, 4096));
    v.fixed("pairs", pairs, "of a step", between(1, 65536));
    v.fixed("max_tokens", max_tokens, "of a reply; one that is cut there is in no pair",
            between(1, bounds::kSequence));
    v.free("reply_tokens", reply_tokens,
           "that a reply has on average, by which plans count work and time; 0: they count with max_tokens",
           up_to(bounds::kSequence));
    v.fixed("thinking", thinking,
            "whether replies reason: any (as the template does), on, off, mixed (every other problem)");
    v.free("cache_mib", cache_mib, "memory for cached keys and values while replies are sampled",
           between(1, 0x1p30, "MiB"));
  }
  void validate(ConfigErrors& e) const {
    if (environments.empty()) e.add("environments", "at least one is needed");
    if (reply_tokens > max_tokens)
      e.add("reply_tokens", "must be at most max_tokens = {}, found {}", max_tokens, reply_tokens);
  }
};

}  // namespace ingot
