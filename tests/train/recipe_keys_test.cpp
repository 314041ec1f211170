// Every key of a recipe is either fixed ("key!") or free where a run resumes. A new key fails here until it
// is listed, so that whoever adds it decides: a key is fixed where another value would not continue the run
// that the checkpoint holds.
#include <gtest/gtest.h>

#include "support/support.h"
#include "train/recipe.h"

namespace ingot::test::recipe_keys_test {
namespace {

/// A line per section, "phases.*: name steps! ...". What lies in a fixed section is fixed and not listed.
struct Keys : FieldVisitor<Keys> {
  std::string path, line, inner;

  template <class T>
  void field(const ConfigKey& key, T& field) {
    line += std::string(" ") + key.name;
    if (key.fixed) {
      line += "!";
      return;
    }
    const std::string here = path.empty() ? key.name : path + "." + key.name;
    if constexpr (config_detail::is_vector<T>) {
      if constexpr (config_detail::Struct<typename T::value_type>) {
        typename T::value_type element{};
        inner += keys_of(here + ".*", element);
      }
    } else if constexpr (config_detail::Struct<T>) {
      inner += keys_of(here, field);
    }
  }
  template <class T>
  static std::string keys_of(const std::string& path, T& section) {
    Keys keys;
    keys.path = path;
    section.visit(keys);
    return path + ":" + keys.line + "\n" + keys.inner;
  }
};

constexpr const char* kKeys =
    ": run model! tokenizer data optimizer phases checkpoint evaluation samples health memory "
    "parallel\n"
    "run: folder seed! precision! start_from branch_from branch_optimizer log_every\n"
    "tokenizer: kind path vocab pattern special_tokens\n"
    "data: folder sampling! document_mask! drop_too_long! end_of_text! end_of_text_first! begin_of_text! "
    "special_tokens! chat_template! trust_text! sources\n"
    "data.sources.*: name path documents marker field prompt_field conversations each_turn thinking "
    "preferences tail_validation validation_fraction weight\n"
    "optimizer: matrices! others! weight_decay adamw ademamix muon master gradient first_moment "
    "second_moment clip qk_clip qk_clip_alpha no_decay not_muon! rules freeze!\n"
    "optimizer.adamw: beta1 beta2 eps\n"
    "optimizer.ademamix: beta3 alpha warmup\n"
    "optimizer.muon: momentum momentum_start momentum_warmup momentum_end momentum_cooldown nesterov "
    "form scale precision lr_multiplier\n"
    "optimizer.rules.*: pattern! optimizer! lr_multiplier decay_multiplier\n"
    "phases.*: name kind! steps! batch! micro_batch sequence! batches! batch_rate! lr schedule warmup "
    "min_lr_ratio decay_fraction decay_shape segments continues weights z_coefficient objective "
    "rope_theta! window_growth! target_source target_loss target_ends published_tokens chat! preference! "
    "own_pairs! rl! optimizer freeze_balance tasks gate\n"
    "phases.*.segments.*: until to shape\n"
    "phases.*.weights.*: source weight\n"
    "phases.*.optimizer: state! clip weight_decay momentum beta1 beta2 muon_lr_multiplier\n"
    "checkpoint: every keep_last\n"
    "evaluation: every tasks tasks_every tasks_limit tasks_folder max_tokens\n"
    "samples: every prompts tokens temperature top_p\n"
    "health: spike_sigma spike_patience dead_patience digest_every agree_every replay_every check_at_rest\n"
    "memory: head limit recompute fp8! offload offload_folder\n"
    "parallel: data tensor sequence context context_form context_inner pipeline chunks schedule "
    "layout expert expert_tensor dispatch node_ranks dispatch_capacity dispatch_drop dispatch_bf16 shard "
    "shard_ranks whole_matrices bucket batch_fit self_test slowest_rank report_after abort_after\n";

TEST(RecipeKeys, AreFixedOrFreeAtResume) {
  Recipe recipe;
  EXPECT_EQ(Keys::keys_of("", recipe), kKeys);
}

constexpr const char* kData = "[[data.sources]]\nname = \"a\"\npath = \"b\"\n";

Recipe read(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  const TempDir folder;
  write_text(folder / "recipe.toml", kData + toml);
  return load_recipe(folder / "recipe.toml", overrides);
}

TEST(RecipeKeys, FormerNamesAreStillRead) {
  EXPECT_EQ(print_config(read("[[stages]]\nsteps = 70\n[[stages]]\nsteps = 90\n")),
            print_config(read("[[phases]]\nsteps = 70\n[[phases]]\nsteps = 90\n")));
  EXPECT_EQ(read("[[stages]]\nsteps = 70\n", {"--stages.0.lr=2", "--phases.0.batch=3"}).phases[0].lr, 2);
  EXPECT_EQ(read("[[phases]]\nsteps = 70\n", {"--stages.0.batch=3"}).phases[0].batch, 3);
  EXPECT_EQ(read("", {"--stages.0.batch=3"}).phases[0].batch, 3);
  EXPECT_THROW(read("[[phases]]\nsteps = 70\n[[stages]]\nsteps = 70\n"), Error);
  const Recipe flat = read("[optimizer]\nmuon_momentum = 0.5\neps = 1e-6\nademamix_warmup = 3\n",
                           {"--optimizer.muon_nesterov=false", "--parallel.dispatch_room=0"});
  EXPECT_EQ(flat.optimizer.muon.momentum, 0.5);
  EXPECT_FALSE(flat.optimizer.muon.nesterov);
  EXPECT_EQ(flat.optimizer.adamw.eps, 1e-6);
  EXPECT_EQ(flat.optimizer.ademamix.warmup, 3);
}

TEST(RecipeKeys, ADifferenceSaysWhetherItsKeyIsFixed) {
  Recipe a = read(""), b = a;
  b.model.moe.scale = 2, b.phases[0].lr = 5, b.phases[0].batch = 5;
  std::string found;
  for (const ConfigDifference& d : diff_config(to_node(a), to_node(b)))
    found += d.path + (d.fixed ? "! " : " ");
  EXPECT_EQ(found, "model.moe.scale! phases.0.batch! phases.0.lr ");
}

}  // namespace
}  // namespace ingot::test::recipe_keys_test
