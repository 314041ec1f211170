// Config structs: every field type through TOML, overrides, printing and back; messages; hostile text.
#include "base/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/philox.h"
#include "support/support.h"

namespace ingot::config_test {

enum class Shape { cosine, linear, wsd };
constexpr auto enum_names(Shape) {
  return names_in_order<Shape>("cosine", "linear", "wsd");
}

struct Source {
  std::string path;
  double weight = 1;
  template <class Visitor>
  void visit(Visitor& v) {
    v("path", path, "folder of token shards");
    v("weight", weight, "share in the mixture", up_to(1e300));
  }
};

struct Stage {
  std::string name = "pretrain";
  int64_t steps = 100;
  Shape decay = Shape::cosine;
  std::vector<Source> sources;
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "name in the log");
    v("steps", steps, "optimizer steps", between(1, bounds::kSteps));
    v("decay", decay, "shape of the decay");
    v("sources", sources, "mixture of this stage");
  }
};

struct Optimizer {
  double lr = 3e-4;
  std::optional<double> clip = 1.0;
  std::optional<Shape> shape;
  std::vector<double> betas = {0.9, 0.95};
  template <class Visitor>
  void visit(Visitor& v) {
    v("lr", lr, "peak learning rate", positive(1e6));
    v("clip", clip, "largest global gradient norm", up_to(1e30));
    v("shape", shape, "decay of the momentum");
    v("betas", betas, "decay of the moments", below_one());
  }
};

struct Recipe {
  std::string name = "run";
  int64_t seed = 1;
  bool strict = true;
  std::vector<std::string> tags;
  std::vector<bool> flags = {true, false};
  Optimizer optimizer;
  std::optional<Source> teacher;
  std::vector<Stage> stages = {Stage{}};
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "name of the run");
    v("seed", seed, "seed of everything random", any_integer());
    v("strict", strict, "refuse what would be slow");
    v("tags", tags, "free words");
    v("flags", flags, "switches");
    v("optimizer", optimizer, "how weights move");
    v("teacher", teacher, "model to distil from");
    v("stages", stages, "training stages in order");
  }
  void validate(ConfigErrors& errors) const {
    if (optimizer.betas.size() != 2)
      errors.add("optimizer.betas", "needs 2 numbers, found {}", optimizer.betas.size());
    if (stages.empty()) errors.add("stages", "needs at least one stage");
  }
};

Recipe parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  ConfigNode tree = parse_toml(text, "recipe.toml");
  for (const auto& argument : overrides) apply_override(tree, to_node(Recipe{}), argument);
  return read_config<Recipe>(tree);
}

std::string message_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse(text, overrides);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Config, ReadsEveryFieldType) {
  const Recipe r = parse(R"(
name = "a"
seed = 1_000
strict = false
tags = ["x", "y"]
flags = [false, true, true]
[optimizer]
lr = 1   # an integer where a number is meant
clip = "none"
shape = "wsd"
[teacher]
path = "t"
[[stages]]
steps = 5
[[stages.sources]]
path = "p"
weight = 0.25
[[stages]]
decay = "linear"
)");
  EXPECT_EQ(r.name, "a");
  EXPECT_EQ(r.seed, 1000);
  EXPECT_FALSE(r.strict);
  EXPECT_EQ(r.tags, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(r.flags, (std::vector<bool>{false, true, true}));
  EXPECT_EQ(r.optimizer.lr, 1.0);
  EXPECT_FALSE(r.optimizer.clip);
  EXPECT_EQ(r.optimizer.shape, Shape::wsd);
  EXPECT_EQ(r.optimizer.betas, (std::vector<double>{0.9, 0.95}));
  ASSERT_TRUE(r.teacher);
  EXPECT_EQ(r.teacher->path, "t");
  ASSERT_EQ(r.stages.size(), 2u);
  EXPECT_EQ(r.stages[0].steps, 5);
  EXPECT_EQ(r.stages[0].sources.at(0).weight, 0.25);
  EXPECT_EQ(r.stages[1].decay, Shape::linear);
  EXPECT_EQ(r.stages[1].steps, 100);
}

TEST(Config, OverridesReachEveryPlace) {
  const Recipe r = parse("[[stages]]\nsteps = 5\n",
                         {"--stages.0.steps=10", "--stages.1.name=mid", "--optimizer.lr=1e-3", "--name=123",
                          "--tags=[\"u\"]", "--optimizer.clip=none", "--stages.1.sources.0.path=a b",
                          "--seed=-3", "--optimizer.shape=linear", "--teacher.weight=2"});
  EXPECT_EQ(r.stages.at(0).steps, 10);
  EXPECT_EQ(r.stages.at(1).name, "mid");
  EXPECT_EQ(r.stages.at(1).sources.at(0).path, "a b");
  EXPECT_EQ(r.optimizer.lr, 1e-3);
  EXPECT_EQ(r.name, "123");
  EXPECT_EQ(r.tags, std::vector<std::string>{"u"});
  EXPECT_FALSE(r.optimizer.clip);
  EXPECT_EQ(r.seed, -3);
  EXPECT_EQ(r.optimizer.shape, Shape::linear);
  EXPECT_EQ(r.teacher->weight, 2.0);
  EXPECT_EQ(parse("teacher = \"none\"", {"--teacher.weight=2"}).teacher->weight, 2.0);
  // An array that only the defaults have.
  EXPECT_EQ(parse("", {"--stages.0.steps=7"}).stages.at(0).steps, 7);
  EXPECT_EQ(parse("", {"--name=x = 1\ny = 2"}).name, "x = 1\ny = 2");
}

TEST(Config, MessagesNamePlaceExpectedAndFound) {
  EXPECT_EQ(message_of("\nsede = 1"), "recipe.toml:2: sede: unknown key; did you mean 'seed'?");
  EXPECT_EQ(message_of("[optimizer]\nlr = \"fast\""),
            "recipe.toml:2: optimizer.lr: expected a number, found the string \"fast\"");
  EXPECT_EQ(message_of("seed = 1e3"),
            "recipe.toml:1: seed: expected an integer, found the number 1000.0; write 1000");
  EXPECT_EQ(message_of("[[stages]]\ndecay = \"cosin\""),
            "recipe.toml:2: stages.0.decay: expected cosine | linear | wsd, found the string \"cosin\"; did "
            "you mean "
            "'cosine'?");
  EXPECT_EQ(message_of("", {"--stages.0.stepz=10"}),
            "--stages.0.stepz=10: stages.0.stepz: unknown key; did you mean 'steps'?");
  EXPECT_EQ(message_of("[optimizer]\nzebra = 1"),
            "recipe.toml:2: optimizer.zebra: unknown key; known here: lr clip shape betas");
  EXPECT_EQ(message_of("optimizer = 3"),
            "recipe.toml:1: optimizer: expected a table of keys, found the number 3");
  EXPECT_EQ(message_of("[[stages]]\nsteps = 0"),
            "recipe.toml:2: stages.0.steps: must be at least 1, found 0");
  EXPECT_EQ(message_of("[optimizer]\nbetas = [0.9]"),
            "recipe.toml:2: optimizer.betas: needs 2 numbers, found 1");
  EXPECT_EQ(message_of("[optimizer]\nbetas = [0.9, 1]"),
            "recipe.toml:2: optimizer.betas.1: must be below 1, found 1");
  EXPECT_EQ(message_of("[optimizer]\nclip = nan"),
            "recipe.toml:2: optimizer.clip: must be a number (0 to 1e+30), found nan");
  EXPECT_EQ(message_of("[[stages]]\nsteps = 9223372036854775807"),
            "recipe.toml:2: stages.0.steps: must be at most 1e+12, found 9223372036854775807");
  EXPECT_EQ(message_of("stages = []"), "recipe.toml:1: stages: needs at least one stage");
  const std::string several = message_of("seed = true\nnmae = \"x\"");
  EXPECT_NE(several.find("2 errors"), std::string::npos) << several;
  EXPECT_NE(several.find("seed: expected an integer, found the boolean true"), std::string::npos) << several;
  EXPECT_NE(message_of("a = [1,").find("recipe.toml:1:"), std::string::npos);
  EXPECT_NE(message_of("seed = 1979-05-27").find("dates"), std::string::npos);
}

TEST(Config, ChecksAStructThatNoTreeGave) {
  Recipe r;
  r.optimizer.betas = {0.5, -1};
  r.stages[0].steps = 0;
  const ConfigNode root;
  ConfigErrors errors(root);
  check_config(r, errors);
  EXPECT_EQ(errors.count(), 2u);
  try {
    errors.throw_if_any();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "2 errors in the configuration:\n  optimizer.betas.1: must not be negative, found -1\n  "
                 "stages.0.steps: must be at least 1, found 0");
  }
  r = Recipe{};
  r.stages.clear();  // and what validate() says
  check_config(r, errors);
  EXPECT_EQ(errors.count(), 3u);
}

TEST(Config, RefusesMalformedOverrides) {
  for (const char* argument : {"seed=1", "--seed", "--.seed=1", "--optimizer..lr=1", "--stages.9.steps=1",
                               "--stages.x.steps=1", "--na me=1", "--seed.x=1", "--name=\xff"})
    EXPECT_THROW(parse("seed = 1", {argument}), Error) << argument;
}

TEST(Config, PrintedTextReadsBackToTheSameConfig) {
  Recipe r;
  r.name = "quote \" slash \\ line\n tab\t bell\x07 é";
  r.optimizer.lr = 0.1 + 0.2;
  r.optimizer.clip.reset();
  r.stages.clear();
  r.stages.push_back({"s", 3, Shape::wsd, {{"p", 1e300}, {"q", 5e-324}}});
  r.stages.push_back({});
  const std::string text = print_config(r);
  const Recipe back = parse(text);
  EXPECT_EQ(print_config(back), text);
  EXPECT_EQ(back.name, r.name);
  EXPECT_EQ(back.optimizer.lr, r.optimizer.lr);
  EXPECT_FALSE(back.optimizer.clip);
  EXPECT_EQ(back.stages[0].sources[1].weight, 5e-324);
  EXPECT_NE(text.find("# peak learning rate (above 0, at most 1000000)\n"), std::string::npos);
  EXPECT_NE(text.find("# shape of the decay (cosine | linear | wsd)"), std::string::npos);
  const std::string plain = print_config(Recipe{});
  EXPECT_EQ(print_config(parse(plain)), plain);
}

TEST(Config, PrintsEveryDoubleExactly) {
  const Random random(3, RandomPurpose::test);
  for (uint64_t i = 0; i < 20000; ++i) {
    ConfigNode tree, value;
    value.kind = ConfigNode::Kind::real;
    const uint64_t bits = random.bits(2 * i) ^ (static_cast<uint64_t>(random.bits(2 * i + 1)) << 32);
    std::memcpy(&value.real, &bits, 8);
    if (std::isnan(value.real)) continue;
    value.name = "x";
    tree.items.push_back(value);
    const ConfigNode back = parse_toml(to_toml(tree), "t");
    ASSERT_EQ(back.find("x")->real, value.real) << to_toml(tree);
  }
}

TEST(Config, DifferencesByPath) {
  Recipe a, b;
  b.optimizer.lr = 1e-3;
  b.stages.push_back({});
  const auto differences = diff_config(to_node(a), to_node(b));
  ASSERT_GE(differences.size(), 2u);
  EXPECT_EQ(differences[0].path, "optimizer.lr");
  EXPECT_EQ(differences[0].left, "0.0003");
  EXPECT_EQ(differences[0].right, "0.001");
  EXPECT_EQ(differences[1].path, "stages.1.name");
  EXPECT_EQ(differences[1].left, "(absent)");
  EXPECT_TRUE(diff_config(to_node(a), to_node(Recipe{})).empty());
}

/// Found by recipe_fuzz: keys that are empty or have dots gave two values one path, and a tree differed from
/// itself.
TEST(Config, NoTwoValuesShareAPath) {
  const ConfigNode tree = parse_toml("a.b = 1\n\"a.b\" = 2\n[\"\".a]\nb = 3\n", "t");
  EXPECT_TRUE(diff_config(tree, tree).empty());
  std::vector<std::string> paths;
  for (const ConfigDifference& d : diff_config(tree, ConfigNode{})) paths.push_back(d.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"a.b", "\"a.b\"", "\"\".a.b"}));
}

/// Found by recipe_fuzz: what an override makes can be printed and read.
TEST(Config, AnOverrideIsNoDeeperThanAFile) {
  std::string key = "a";
  for (int i = 1; i < 32; ++i) key += ".a";
  ConfigNode tree;
  apply_override(tree, {}, "--" + key + "=1");
  EXPECT_TRUE(diff_config(tree, parse_toml(to_toml(tree), "printed")).empty());
  EXPECT_THROW(apply_override(tree, {}, "--" + key + "=[1]"), Error);
}

TEST(Config, JsonHoldsTheSameValues) {
  const std::string json = to_json(to_node(Recipe{}));
  EXPECT_NE(json.find("\"lr\": 0.0003"), std::string::npos) << json;
  EXPECT_NE(json.find("\"stages\": ["), std::string::npos) << json;
}

TEST(Config, KeepsEveryCharacter) {
  const std::string text = "\xc3\xa9 \xe4\xb8\xad \xef\xbf\xbd \xf0\x9f\x98\x80";  // 2, 3, 3 and 4 bytes
  EXPECT_EQ(parse("\xEF\xBB\xBFname = '" + text + "' # " + text).name, text);
  EXPECT_EQ(parse("name = \"\"\"a\\\n  " + text + "\"\"\"").name, "a" + text);
  EXPECT_EQ(parse("name = \"\\u00e9\"").name, "\xc3\xa9");
  EXPECT_EQ(parse("", {"--name=" + text}).name, text);
  EXPECT_EQ(parse(print_config(parse("name = \"\\U000F0041\""))).name, "\xf3\xb0\x81\x81");
  EXPECT_NE(message_of("\"" + text + "\" = 1").find(text + ": unknown key"), std::string::npos);
  EXPECT_NE(message_of("a = '\xc3'").find("not UTF-8"), std::string::npos);
  EXPECT_NE(message_of("a = '\xf3\xb0\x85\x81'").find("U+F0141"), std::string::npos);
}

TEST(Config, LoadsAFile) {
  test::TempDir folder;
  const std::string path = folder / "recipe.toml";
  std::ofstream(path) << "seed = 9\n";
  EXPECT_EQ(load_config<Recipe>(path, {"--name=n"}).seed, 9);
  EXPECT_EQ(load_config<Recipe>("", {"--name=n"}).name, "n");
  EXPECT_THROW(load_config<Recipe>(folder / "absent.toml"), Error);
}

// Hostile text is an Error or a config, never a crash or an endless loop.
TEST(Config, SurvivesHostileText) {
  const std::string deep = "a" + std::string(1000000, '.');
  std::string dotted = "a", nested = "x = ", tables, quoted = "\"a\"";
  for (int i = 0; i < 100000; ++i) dotted += ".a", quoted += ".\"#\"";
  nested += std::string(100000, '[');
  for (int i = 0; i < 20000; ++i) tables += "[[a]]\n";
  std::string inline_tables = "x = ";
  for (int i = 0; i < 5000; ++i) inline_tables += "{a.a.a.a.a.a=";
  for (const std::string& text :
       {deep, dotted + " = 1", "[" + dotted + "]", quoted + " = 1", nested, tables, inline_tables,
        std::string(2000000, ' '), std::string("\0", 1), std::string("\xff"), std::string("x = \"\\"),
        std::string("'''"), std::string("#"), std::string("a = 1='\xcf\x88\0\n", 10),
        std::string("\xce\xbd:"), std::string("x = \"\"\"\\\n \xc3\xa9\"\"\""), std::string("[ ,a]"),
        std::string("x = {\n [,u]\n}")}) {
    try {
      parse(text);
    } catch (const Error& error) {
      EXPECT_LT(std::string(error.what()).size(), 2000u);
    }
  }
}

TEST(Config, SurvivesMutatedRecipes) {
  const std::string seed_text =
      print_config(Recipe{}) + "[[stages]]\nsources = [{path = 'x', weight = 0.5}]\n";
  EXPECT_EQ(parse(seed_text).stages.size(), 2u);
  const Random random(11, RandomPurpose::test);
  uint64_t at = 0;
  const auto next = [&](uint64_t below) { return random.bits(at++) % below; };
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = seed_text;
    for (uint64_t edits = 1 + next(4); edits > 0; --edits) {
      const size_t place = next(text.size() + 1);
      switch (next(4)) {
        case 0:
          text.insert(place, 1, static_cast<char>(next(256)));
          break;
        case 1:
          text.erase(place, next(9));
          break;
        case 2:
          text.insert(place, text.substr(next(text.size() + 1), next(40)));
          break;
        default:
          text.insert(place, 1, "[]{}=.\"'\n#_-e0"[next(14)]);
      }
      if (text.empty()) text = "x";
    }
    try {
      const Recipe r = parse(text);
      ASSERT_EQ(print_config(parse(print_config(r))), print_config(r)) << text;
      ++accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(accepted, 20);
}

}  // namespace ingot::config_test
