// The pre-tokenization patterns of well-known tokenizers, by name. See tokenizer_spec.h.
#include "tokenizer/tokenizer_spec.h"

namespace ingot {
namespace {

struct NamedPattern {
  std::string_view name;
  std::vector<std::string_view> regexes;
};

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kNanochat = R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}|)"
                                       R"( ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeekWords =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const std::vector<NamedPattern>& named_patterns() {
  static const std::vector<NamedPattern> patterns = {
      {"llama3", {kLlama3}},
      {"cl100k", {kLlama3}},
      {"qwen2", {kQwen2}},
      {"o200k", {kO200k}},
      {"nanochat", {kNanochat}},
      {"deepseek-v3", {R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", kDeepSeekWords}},
  };
  return patterns;
}

}  // namespace

std::string_view gpt2_pattern() {
  return kGpt2;
}

void set_pattern(TokenizerSpec& spec, std::string_view name_or_regex) {
  spec.splits.clear();
  const bool digits = name_or_regex == "digits";
  if (digits) spec.splits.push_back({SplitRule::Kind::digits, "", SplitBehavior::isolated, false});
  spec.gpt2_split = digits || name_or_regex == "gpt2";
  if (spec.gpt2_split) return;
  SplitRule rule;
  for (const NamedPattern& known : named_patterns())
    if (known.name == name_or_regex) {
      for (const std::string_view regex : known.regexes) {
        rule.pattern = regex;
        spec.splits.push_back(rule);
      }
      return;
    }
  rule.pattern = name_or_regex;
  spec.splits.push_back(rule);
}

}  // namespace ingot
