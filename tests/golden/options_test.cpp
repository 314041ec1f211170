// Every option has a loss curve: each recipe field that can change the weights takes, in some case of
// golden_test.cpp, a value other than its default; an enum takes all of its values. A new field without a
// case fails here. No two cases have the same curve, so each option that a case sets has an effect.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "golden/cases.h"

namespace ingot::test::options_test {

/// Sections, fields and values that do not change the curve, that no case of one run can have, or that are
/// refused; each names where it is tested.
const std::map<std::string, const char*> kElsewhere = {
    {"run.folder", "a place"},
    {"run.start_from", "needs a run before it: quick.LoraRun"},
    {"model.custom_attention", "registered by another program: docs.Docs"},
    {"model.mlp=silu", "refused: no nonlinearity of an MLP"},
    {"model.mlp=soft_cap", "refused: no nonlinearity of an MLP"},
    {"phases.*.objective", "registered by another program: docs.Docs"},
    {"phases.*.decay_shape=hold", "refused: nothing would decay"},
    {"run.branch_from", "begins from another run: quick.Branch"},
    {"run.branch_optimizer", "begins from another run: quick.Branch"},
    {"run.log_every", "what is printed"},
    {"data.folder", "a place"},
    {"tokenizer.special_tokens", "the text of these cases spells none: quick.RecipeTokens"},
    {"data.chat_template", "these cases have no conversations: runs.ChatFinetune"},
    {"data.trust_text", "these cases have no conversations: runs.ChatFinetune"},
    {"data.sources.*.conversations", "these cases have no conversations: runs.ChatFinetune"},
    {"data.sources.*.each_turn", "these cases have no conversations: quick.EncodeRows"},
    {"data.sources.*.thinking", "these cases have no conversations: quick.EncodeRows"},
    {"data.sources.*.preferences", "these cases have no preferences: quick.EncodeRows"},
    {"phases.*.kind", "what follows pretraining: runs.Phases"},
    {"phases.*.chat", "of kind chat: runs.Phases"},
    {"phases.*.preference", "of kind preference: runs.Phases"},
    {"phases.*.own_pairs", "of kind own_preference: runs.OwnPairs"},
    {"phases.*.rl", "of kind rl: invariance.RlRun"},
    {"phases.*.optimizer", "of a phase after others: runs.PhaseOptimizer"},
    {"phases.*.freeze_balance", "of a phase after others: runs.PhaseOptimizer"},
    {"phases.*.tasks", "leaves the weights alone"},
    {"phases.*.gate", "leaves the weights alone, or ends the run: runs.RunTasks"},
    {"optimizer.master", "ranks.Storage"},
    {"optimizer.gradient", "ranks.Storage"},
    {"data.special_tokens", "the text of these cases spells none: quick.DocumentTokensTest"},
    {"phases.*.target_source", "ends a run, at most: runs.TrainingTarget"},
    {"phases.*.target_loss", "ends a run, at most: runs.TrainingTarget"},
    {"phases.*.target_ends", "ends a run, at most: runs.TrainingTarget"},
    {"phases.*.published_tokens", "printed by the plan: docs.Recipes"},
    {"checkpoint", "leaves the weights alone"},
    {"evaluation", "leaves the weights alone"},
    {"samples", "leaves the weights alone"},
    {"health", "leaves the weights alone, or stops the run"},
    {"memory.head", "every way has the same bits: quick.TapeTest"},
    {"memory.limit", "every policy that it chooses has the same bits: runs.Limited"},
    {"memory.recompute", "the same bits: runs.Limited, quick.RecomputeTest"},
    {"memory.offload", "the same bits: runs.Limited, quick.RecomputeTest"},
    {"memory.offload_folder", "a place"},
    {"parallel", "every layout follows one rank: ranks.TrainerRanks"},
};

bool is_elsewhere(const std::string& path) {
  for (const auto& [prefix, reason] : kElsewhere)
    if (path == prefix || path.rfind(prefix + ".", 0) == 0) return true;
  return false;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += word + " ";
  return all;
}

/// The values of every leaf of a recipe by path; elements of lists share the path "list.*".
struct Values : FieldVisitor<Values> {
  std::map<std::string, std::set<std::string>> found;
  std::string prefix;

  template <class T>
  void field(const ConfigKey& key, T& field) {
    add((prefix.empty() ? "" : prefix + ".") + key.name, field);
  }
  template <class T>
  void add(const std::string& path, T& value) {
    if constexpr (config_detail::is_optional<T>) {
      if (value)
        add(path, *value);
      else
        found[path].insert("none");
    } else if constexpr (config_detail::Struct<T>) {
      Values inner;
      inner.prefix = path;
      value.visit(inner);
      for (auto& [p, v] : inner.found) found[p].insert(v.begin(), v.end());
    } else if constexpr (config_detail::is_vector<T>) {
      if constexpr (config_detail::Struct<typename T::value_type>)
        for (auto& element : value) add(path + ".*", element);
      else
        found[path].insert(joined(value));
    } else if constexpr (std::is_enum_v<T>) {
      found[path].insert(name_of(value));
    } else {
      found[path].insert(fmt::format("{}", value));
    }
  }
};

/// The values that the cases must differ from or contain: a leaf's default, and for an enum every name.
struct Wanted : FieldVisitor<Wanted> {
  std::map<std::string, std::string> defaults;
  std::map<std::string, std::vector<std::string>> names;
  std::string prefix;

  template <class T>
  void field(const ConfigKey& key, T& field) {
    add((prefix.empty() ? "" : prefix + ".") + key.name, field);
  }
  template <class T>
  void add(const std::string& path, T& value) {
    if constexpr (config_detail::is_optional<T>) {
      if constexpr (std::is_enum_v<typename T::value_type>)
        names[path] = config_detail::names_of<typename T::value_type>();
      defaults[path] = "none";
    } else if constexpr (config_detail::Struct<T>) {
      const std::string outer = std::exchange(prefix, path);
      value.visit(*this);
      prefix = outer;
    } else if constexpr (config_detail::is_vector<T>) {
      if constexpr (config_detail::Struct<typename T::value_type>) {
        typename T::value_type element{};
        add(path + ".*", element);
      } else {
        defaults[path] = joined(value);
      }
    } else if constexpr (std::is_enum_v<T>) {
      names[path] = config_detail::names_of<T>();
    } else {
      defaults[path] = fmt::format("{}", value);
    }
  }
};

TEST(GoldenOptions, EveryOptionHasACurve) {
  Values values;
  for (const Case& c : kCases) {
    const TempDir folder;
    write_text(folder / "recipe.toml", recipe_of(folder.path(), c));
    Recipe recipe = load_recipe(folder / "recipe.toml", {});
    recipe.visit(values);
  }
  Wanted wanted;
  Recipe plain;
  plain.visit(wanted);
  for (const auto& [path, standard] : wanted.defaults) {
    std::set<std::string> others = values.found[path];
    others.erase(standard);
    EXPECT_TRUE(!others.empty() || is_elsewhere(path))
        << path << ": no case has another value than " << standard << "; add one to golden/cases.h";
  }
  for (const auto& [path, names] : wanted.names)
    for (const std::string& name : names)
      EXPECT_TRUE(values.found[path].count(name) == 1 || is_elsewhere(path) ||
                  is_elsewhere(path + "=" + name))
          << path << ": no case has " << name << "; add one to golden/cases.h";
  for (const auto& [prefix, reason] : kElsewhere) {
    bool named = false;
    for (const auto& [path, standard] : wanted.defaults)
      named |= path == prefix || path.rfind(prefix + ".", 0) == 0;
    for (const auto& [path, names] : wanted.names)
      for (const std::string& name : names) named |= path == prefix || path + "=" + name == prefix;
    EXPECT_TRUE(named) << prefix << " is no option any more";
  }
}

TEST(GoldenOptions, SuitesThatAreNamedExist) {
  std::string sources;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(INGOT_SOURCE_DIR "/tests"))
    if (entry.path().string().ends_with("_test.cpp")) sources += read_text(entry.path().string());
  const std::regex name("\\b(?:quick|runs|invariance|docs|ranks)\\.([A-Za-z]+)");
  size_t names = 0;
  for (const auto& [option, reason] : kElsewhere) {
    const std::string text = reason;
    for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at, ++names)
      EXPECT_TRUE(std::regex_search(sources, std::regex("TEST(_F|_P)?\\(" + (*at)[1].str() + ",")))
          << option << ": no test file has the suite " << (*at)[1];
  }
  EXPECT_GT(names, 20u);
}

TEST(GoldenOptions, NoTwoCasesHaveTheSameCurve) {
  std::map<std::string, std::string> owners;
  for (const Case& c : kCases) {
    const auto [other, isnew] =
        owners.emplace(read_text(fixture(fmt::format("golden/{}.txt", c.name))), c.name);
    EXPECT_TRUE(isnew) << c.name << " has the curve of " << other->second;
  }
}

}  // namespace ingot::test::options_test
