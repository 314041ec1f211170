// Tokenizers in GGUF files: what llama.cpp is told, and where it may give other ids. llama.cpp itself encodes
// text in tools/oracle/check_gguf.py.
#include "exchange/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "support/expect_parts.h"
#include "support/support.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot::test::gguf_tokenizer_test {

/// The tokenizer.json of a fixture, changed.
std::string json_of(const std::string& name, const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json j = nlohmann::json::parse(read_text(fixture("tokenizer/" + name + ".json")))["tokenizer"];
  change(j);
  return j.dump();
}

struct Written {
  std::string file;
  std::vector<std::string> notes;

  bool has(const std::string& key) const { return file.find(key) != file.npos; }
  /// Where the value of a key begins, behind its type.
  const char* value(const std::string& key) const {
    const size_t at = file.find(key);
    EXPECT_NE(at, file.npos) << key;
    return at == file.npos ? file.data() : file.data() + at + key.size() + 4;
  }
  /// Element i of an array of numbers.
  template <class T>
  T element(const std::string& key, size_t i) const {
    T v;
    std::memcpy(&v, value(key) + 4 + 8 + i * sizeof(T), sizeof(T));
    return v;
  }
};

class GgufTokenizer : public ::testing::Test {
 protected:
  Written written(const Tokenizer& t, int64_t more = 0) {
    GgufWriter w;
    Written out;
    add_gguf_tokenizer_keys(w, t, t.vocab_size() + more, "", out.notes);
    w.write(real_file_system(), dir_ / "keys", [](size_t) { return std::vector<std::byte>(); });
    out.file = read_text(dir_ / "keys");
    return out;
  }
  Written written(
      const std::string& name, const std::function<void(nlohmann::json&)>& change = [](auto&) {}) {
    return written(Tokenizer::from_json(json_of(name, change)));
  }
  TempDir dir_;
};

TEST_F(GgufTokenizer, ScoresAreTheRanksOfMerges) {
  const Tokenizer t = Tokenizer::from_json(json_of("gemma", [](auto&) {}));
  const TokenizerSpec& spec = t.spec();
  const Written w = written(t, 2);
  EXPECT_EQ(std::string(w.value("tokenizer.ggml.model") + 8, 5), "llama");
  EXPECT_EQ(*w.value("tokenizer.ggml.add_space_prefix"), 0);
  const auto id = [&](const std::string& token) {
    return static_cast<size_t>(std::find(spec.vocabulary.begin(), spec.vocabulary.end(), token) -
                               spec.vocabulary.begin());
  };
  const auto joint = [&](size_t rank) {
    const auto& [a, b] = spec.merges[rank];
    return id(spec.vocabulary[static_cast<size_t>(a)] + spec.vocabulary[static_cast<size_t>(b)]);
  };
  const auto score = [&](size_t i) { return w.element<float>("tokenizer.ggml.scores", i); };
  EXPECT_EQ(score(joint(0)), 0.0f);
  EXPECT_LT(score(joint(spec.merges.size() - 1)), score(joint(0)));
  EXPECT_LT(score(id("<0x0A>")), -1e8f) << "no merge makes it";
  const auto type = [&](size_t i) { return w.element<int32_t>("tokenizer.ggml.token_type", i); };
  EXPECT_EQ(type(joint(0)), 1);
  EXPECT_EQ(type(id("<0x0A>")), 6);
  for (const AddedToken& a : spec.added_tokens)
    EXPECT_EQ(type(static_cast<size_t>(a.id)), a.content == "<unk>" ? 2 : 3) << a.content;
  EXPECT_EQ(type(static_cast<size_t>(t.vocab_size()) + 1), 5) << "a row beyond the tokenizer";
  EXPECT_TRUE(w.notes.empty());
}

TEST_F(GgufTokenizer, SpacesInFront) {
  const Written llama2 = written("llama2");
  EXPECT_EQ(*llama2.value("tokenizer.ggml.add_space_prefix"), 1);
  EXPECT_TRUE(llama2.notes.empty());
  EXPECT_EQ(*written("metaspace_never").value("tokenizer.ggml.add_space_prefix"), 0);
  const Written first = written("metaspace_first");
  EXPECT_EQ(*first.value("tokenizer.ggml.add_space_prefix"), 1);
  ASSERT_EQ(first.notes.size(), 1u);
  expect_parts(first.notes[0], {"only at the beginning", "ids may differ"});
}

TEST_F(GgufTokenizer, SaysWhereIdsMayDiffer) {
  const auto note = [&](const std::function<void(nlohmann::json&)>& change) {
    const Written w = written("gemma", [&](nlohmann::json& j) { change(j["model"]); });
    EXPECT_EQ(w.notes.size(), 1u);
    return w.notes.empty() ? "" : w.notes[0];
  };
  expect_parts(note([](nlohmann::json& model) {  // a second way to a token, far behind the first
                 for (const auto& m : nlohmann::json(model["merges"])) {
                   const std::string whole = m[0].get<std::string>() + m[1].get<std::string>();
                   for (size_t k = 1; k < whole.size(); ++k) {
                     const std::string left = whole.substr(0, k), right = whole.substr(k);
                     if (left == m[0] || !model["vocab"].contains(left) || !model["vocab"].contains(right))
                       continue;
                     model["merges"].push_back({left, right});
                     return;
                   }
                 }
                 ADD_FAILURE() << "every token has one split";
               }),
               {"ranks tokens", "1 tokens", "ids may differ"});
  expect_parts(note([](nlohmann::json& model) { model["merges"].erase(model["merges"].size() - 1); }),
               {"ranks tokens", "1 tokens"});
  const Written strips = written("gemma", [](nlohmann::json& j) { j["added_tokens"][1]["rstrip"] = true; });
  ASSERT_EQ(strips.notes.size(), 1u);
  expect_parts(strips.notes[0], {"'<eos>'", "white space"});
}

TEST_F(GgufTokenizer, RefusesWhatLlamaCppHasNoKindFor) {
  expect_parts(message_of([&] { written("unigram"); }), {"unigram", "--format=hf"});
  expect_parts(message_of([&] { written("metaspace_always"); }), {"does not split", "byte fallback"});
  expect_parts(message_of([&] { written("nanochat"); }), {"how this tokenizer splits", "qwen2"});
}

}  // namespace ingot::test::gguf_tokenizer_test
