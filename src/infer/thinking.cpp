// See thinking.h.
#include "infer/thinking.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {
namespace {

const std::vector<int32_t>& closing_ids(const ThinkingBudget& b) {
  return b.closing.empty() ? b.close : b.closing;
}

}  // namespace

ThinkingBudget thinking_budget(const chat::ReplyFormat& format, const Tokenizer& tokenizer,
                               int64_t max_tokens, bool opened) {
  ThinkingBudget budget;
  if (format.think_close.empty()) return budget;
  budget.open = tokenizer.encode(format.think_open, {.parse_special = true});
  budget.close = tokenizer.encode(format.think_close, {.parse_special = true});
  budget.max_tokens = max_tokens;
  budget.opened = opened;
  return budget;
}

void validate(const ThinkingBudget& b) {
  if (b.close.empty()) {
    if (b.max_tokens >= 0 || !b.open.empty() || !b.closing.empty() || b.opened)
      throw Error("a thinking budget without the ids that end the thinking",
                  "name the mark that ends the thinking, or give no budget");
  } else {
    if (b.open.empty() && !b.opened)
      throw Error("a thinking budget without the ids that begin the thinking",
                  "name the mark that begins the thinking");
    const auto& closing = closing_ids(b);
    if (closing.size() < b.close.size() || !std::equal(b.close.rbegin(), b.close.rend(), closing.rbegin()))
      throw Error("the ids that are forced at the end of the thinking budget do not end the thinking",
                  "let them end with the mark that ends the thinking");
  }
  if (b.max_tokens < -1 || b.answer_tokens < -1 || b.answer_tokens == 0)
    fail(
        "budgets of {} tokens for thinking and {} for the answer; expected -1 (no limit), thinking >= 0, "
        "answer >= 1",
        b.max_tokens, b.answer_tokens);
}

ThinkingState::ThinkingState(const ThinkingBudget& budget)
    : budget_(&budget), phase_(budget.opened ? Phase::thinking : Phase::before) {
  closing_ = phase_ == Phase::thinking && budget.max_tokens == 0;
}

bool ThinkingState::ends_with(std::span<const int32_t> mark) const {
  return !mark.empty() && recent_.size() >= mark.size() &&
         std::equal(mark.rbegin(), mark.rend(), recent_.rbegin());
}

std::optional<int32_t> ThinkingState::forced() const {
  if (!closing_) return {};
  return closing_ids(*budget_)[forcing_];
}

bool ThinkingState::push(int32_t id) {
  const size_t longest = std::max(budget_->open.size(), budget_->close.size());
  recent_.push_back(id);
  if (recent_.size() > longest) recent_.erase(recent_.begin());
  inside_ = phase_ == Phase::thinking;
  if (closing_) {
    if (++forcing_ == closing_ids(*budget_).size()) closing_ = false, phase_ = Phase::answer;
    return true;
  }
  if (phase_ == Phase::thinking) {
    if (ends_with(budget_->close)) {
      phase_ = Phase::answer;
    } else {
      ++thinking_;
      closing_ = budget_->max_tokens >= 0 && thinking_ >= budget_->max_tokens;
    }
    return true;
  }
  if (phase_ == Phase::before && ends_with(budget_->open)) {
    phase_ = Phase::thinking, inside_ = true;
    answer_ = 0;
    closing_ = budget_->max_tokens == 0;
    return true;
  }
  ++answer_;
  return budget_->answer_tokens < 0 || answer_ < budget_->answer_tokens;
}

}  // namespace ingot
