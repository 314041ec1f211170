// From rows to what a model is asked, as lm-evaluation-harness forms it: where a continuation begins in
// ids, how a long text is divided into windows, what is cut on the left. Pure functions.
#pragma once
#include <utility>

#include "eval/task_model.h"

namespace ingot {

/// Context and continuation as ids. White space at the end of the context goes to the continuation; then the
/// continuation is what follows, in the ids of both together, as many ids as the context alone has. Cuts the
/// context on the left to what fits, and says so by `cut`. Error where the continuation alone does not fit.
ScoreRequest score_request(const TaskModel& model, const std::string& context,
                           const std::string& continuation, const std::string& where, bool& cut);

/// A text as windows of `window` predicted ids. The first is predicted from prefix(); the others from the id
/// before them; the last, shorter one from as many ids before it as fill a window.
std::vector<ScoreRequest> window_requests(const TaskModel& model, const std::string& text, int64_t window);

/// The prompt's ids, cut on the left to leave space for max_tokens new ones. Error where they leave none.
std::vector<int32_t> answer_prompt(const TaskModel& model, std::vector<int32_t> ids, int64_t max_tokens,
                                   const std::string& where, bool& cut);

}  // namespace ingot
