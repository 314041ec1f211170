// See regex.h.
#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace ingot {
namespace {

// Backtracking steps within one match. A sane pattern may look at a long run of spaces a few times.
constexpr uint32_t kMatchLimit = 100'000;
constexpr size_t kMatchLimitPerByte = 32;
constexpr uint32_t kHeapLimitKib = 32 * 1024;  // where no JIT is allowed
constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr size_t kJitStackBytes = 1 << 20;
constexpr auto kBaseBudget = std::chrono::seconds(1);
constexpr auto kBudgetPerByte = std::chrono::microseconds(4);  // 0.25 MB/s
constexpr unsigned kCallsPerClockRead = 16;

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

std::chrono::nanoseconds thread_time() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

}  // namespace

struct RegexScratch::Pcre {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr);

  Pcre() {
    INGOT_CHECK(data != nullptr && context != nullptr && stack != nullptr, "out of memory");
    pcre2_set_heap_limit(context, kHeapLimitKib);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Pcre() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

RegexScratch::RegexScratch() : pcre_(std::make_unique<Pcre>()) {
  begin_text(0);
}
RegexScratch::~RegexScratch() = default;

void RegexScratch::begin_text(size_t bytes) {
  budget_ = kBaseBudget + kBudgetPerByte * static_cast<int64_t>(bytes);
  cpu_begin_ = thread_time();
  next_look_ = std::chrono::steady_clock::now() + budget_;
  const size_t limit = std::min<size_t>(kMatchLimit + kMatchLimitPerByte * bytes, UINT32_MAX);
  pcre2_set_match_limit(pcre_->context, static_cast<uint32_t>(limit));
  pcre2_set_depth_limit(pcre_->context, static_cast<uint32_t>(limit));
}

void RegexScratch::check_budget(const std::string& pattern, size_t bytes) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return;
  const auto used = thread_time() - cpu_begin_;  // a sleeping machine spends no budget
  if (used >= budget_) fail("split pattern '{}' takes too long on a text of {} bytes", pattern, bytes);
  next_look_ = now + (budget_ - used);
}

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern, bool literal) : code_(std::make_unique<Code>()), pattern_(pattern) {
  if (pattern.empty()) throw Error("a split pattern is empty");
  if (pattern.size() > kMaxPatternBytes)
    fail("a split pattern has {} bytes, at most {} are accepted", pattern.size(), kMaxPatternBytes);
  if (utf8::valid_prefix(pattern) != pattern.size()) throw Error("a split pattern is not valid UTF-8");
  const std::string text = literal ? pattern : to_pcre2_dialect(pattern);
  const uint32_t flags = literal ? PCRE2_UTF | PCRE2_ANCHORED | PCRE2_LITERAL
                                 : PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_MULTILINE |
                                       PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK;
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), flags, &error, &offset, nullptr);
  if (code_->code == nullptr)
    fail("split pattern '{}' does not compile: {} (at offset {} of '{}')", pattern, message_of(error), offset,
         text);
  code_->jit = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

bool Regex::match_at(std::string_view text, size_t at, RegexScratch& scratch, Match& match) const {
  if (++scratch.calls_ % kCallsPerClockRead == 0) scratch.check_budget(pattern_, text.size());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  RegexScratch::Pcre& pcre = *scratch.pcre_;
  const auto run = code_->jit ? pcre2_jit_match : pcre2_match;
  const int found = run(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, pcre.data, pcre.context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0)
    fail("split pattern '{}' fails at byte {} of a text of {} bytes: {}", pattern_, at, text.size(),
         message_of(found));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(pcre.data);
  match = {range[0], range[1]};
  return true;
}

}  // namespace ingot
