// See requests.h.
#include "eval/requests.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {

ScoreRequest score_request(const TaskModel& model, const std::string& context,
                           const std::string& continuation, const std::string& where, bool& cut) {
  const std::string head(python_rstrip(context));
  ScoreRequest r;
  std::vector<int32_t> whole = model.encode(context + continuation);
  if (!head.empty()) {
    r.context = model.encode(head);
    whole.erase(whole.begin(),
                whole.begin() + static_cast<int64_t>(std::min(r.context.size(), whole.size())));
    if (model.begin()) r.context.insert(r.context.begin(), *model.begin());
  } else {
    r.context = {model.prefix()};
  }
  r.continuation = std::move(whole);
  const auto limit = static_cast<size_t>(model.context());
  if (r.continuation.size() >= limit)
    throw Error(
        fmt::format("{}: the text to predict has {} tokens", where, r.continuation.size()),
        fmt::format("the model's context is {}: shorten it, or use a model with a longer context", limit));
  const size_t space = limit - r.continuation.size();
  cut = r.context.size() > space;
  if (cut) r.context.erase(r.context.begin(), r.context.end() - static_cast<int64_t>(space));
  return r;
}

std::vector<ScoreRequest> window_requests(const TaskModel& model, const std::string& text, int64_t window) {
  const std::vector<int32_t> ids = model.encode(text);
  const auto count = static_cast<int64_t>(ids.size());
  const int64_t width = window > 0 ? std::min(window, model.context() - 1) : model.context() - 1;
  std::vector<ScoreRequest> windows;
  for (int64_t done = 0; done < count;) {
    const int64_t n = std::min(count - done, width);
    ScoreRequest r;
    if (done == 0)
      r.context = {model.prefix()};
    else
      r.context.assign(ids.begin() + std::max<int64_t>(0, done + n - width - 1), ids.begin() + done);
    r.continuation.assign(ids.begin() + done, ids.begin() + done + n);
    windows.push_back(std::move(r));
    done += n;
  }
  return windows;
}

std::vector<int32_t> answer_prompt(const TaskModel& model, std::vector<int32_t> ids, int64_t max_tokens,
                                   const std::string& where, bool& cut) {
  const int64_t space = model.context() - max_tokens;
  if (space < 1)
    throw Error(
        fmt::format("{}: answers of {} tokens leave no space for a prompt in the model's context of {}",
                    where, max_tokens, model.context()),
        "lower sampling.max_tokens of the task");
  if (ids.empty()) ids = {model.prefix()};
  cut = static_cast<int64_t>(ids.size()) > space;
  if (cut) ids.erase(ids.begin(), ids.end() - space);
  return ids;
}

}  // namespace ingot
