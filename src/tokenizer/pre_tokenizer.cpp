// See pre_tokenizer.h.
#include "tokenizer/pre_tokenizer.h"

#include "base/utf8.h"
#include "tokenizer/newer_characters.h"

namespace ingot {
namespace {

Regex compile(const SplitRule& rule) {
  if (rule.kind == SplitRule::Kind::digits) return Regex(R"(\p{N})");
  return Regex(rule.pattern, rule.kind == SplitRule::Kind::literal);
}

}  // namespace

PreTokenizer::PreTokenizer(const TokenizerSpec& spec) {
  for (const SplitRule& rule : spec.splits)
    stages_.push_back(
        {compile(rule), rule.behavior, rule.invert,
         rule.kind == SplitRule::Kind::literal || !with_known_characters(rule.pattern).empty()});
  if (spec.gpt2_split)
    stages_.push_back({Regex(std::string(gpt2_pattern())), SplitBehavior::isolated, false, false});
}

/// Covers `text` with matches and the gaps between them, as Oniguruma's find_iter does: an empty match right
/// after another match does not count. Every attempt is anchored, so that its cost is bounded.
template <class Body>
void PreTokenizer::for_each_range(const Stage& stage, std::string_view text, RegexScratch& scratch,
                                  Body&& body) {
  size_t at = 0;       // where the next attempt starts
  size_t covered = 0;  // everything before was passed on
  bool any = false;    // a match ended at `covered`
  Regex::Match m;
  while (at <= text.size()) {
    const bool found = stage.regex.match_at(text, at, scratch, m);
    if (!found || (m.begin == m.end && any && m.end == covered)) {
      if (at == text.size()) break;
      at += utf8::decode(text.substr(at)).length;
      continue;
    }
    if (m.begin > covered) body(covered, m.begin, false);
    if (m.end > m.begin) body(m.begin, m.end, true);
    at = covered = m.end;
    any = true;
    if (at == text.size()) break;
  }
  if (covered < text.size()) body(covered, text.size(), false);
}

void PreTokenizer::start(std::string_view text, RegexScratch& scratch, Sink sink, void* context) const {
  const std::string known = with_known_characters(text);
  run(0, {text, known.empty() ? text : known, scratch, sink, context}, 0, text.size());
}

void PreTokenizer::run(size_t index, const Job& job, size_t begin, size_t end) const {
  if (begin == end) return;
  if (index == stages_.size()) return job.sink(job.context, job.text.substr(begin, end - begin));
  const Stage& stage = stages_[index];
  const auto emit = [&](size_t first, size_t last) { run(index + 1, job, begin + first, begin + last); };
  const std::string_view seen = (stage.spells ? job.text : job.known).substr(begin, end - begin);
  if (stage.behavior == SplitBehavior::isolated) {
    for_each_range(stage, seen, job.scratch, [&](size_t first, size_t last, bool) { emit(first, last); });
    return;
  }
  // The other behaviors join neighbours: collect, join, pass on.
  std::vector<Range> joined;
  bool previous = false;  // was the range before a match?
  for_each_range(stage, seen, job.scratch, [&](size_t first, size_t last, bool matched) {
    const bool is_match = matched != stage.invert;
    bool join = false;
    switch (stage.behavior) {
      case SplitBehavior::merged_with_previous:
        join = is_match && !previous;
        break;
      case SplitBehavior::merged_with_next:
        join = !is_match && previous;
        break;
      case SplitBehavior::contiguous:
        join = is_match == previous;
        break;
      default:
        break;
    }
    if (join && !joined.empty()) {
      joined.back().end = last;
    } else {
      joined.push_back({first, last, is_match});
    }
    previous = is_match;
  });
  for (const Range& r : joined)
    if (stage.behavior != SplitBehavior::removed || !r.is_match) emit(r.begin, r.end);
}

}  // namespace ingot
