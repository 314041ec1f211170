// The sections [evaluation] and [samples] of a recipe: what a run measures and shows while it trains.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/range.h"

namespace ingot {

struct EvaluationConfig {
  int64_t every = 100;
  int64_t max_tokens = 65536;
  std::vector<std::string> tasks;
  int64_t tasks_every = 0, tasks_limit = 0;
  std::string tasks_folder;
  template <class Visitor>
  void visit(Visitor& v) {
    v("every", every, "steps between validations; 0: only at the end", up_to(bounds::kSteps));
    v("tasks", tasks, "tasks that the run's model does (docs/evaluate.md): names, or paths of task files");
    v("tasks_every", tasks_every, "steps between them; 0: with every checkpoint", up_to(bounds::kSteps));
    v("tasks_limit", tasks_limit, "the first so many rows of each only; 0: all", up_to(bounds::kTokens));
    v("tasks_folder", tasks_folder, "where they are looked for by name; empty: tasks");
    v("max_tokens", max_tokens,
      "validation tokens per source during the run; the end uses all. 0: always all", up_to(bounds::kTokens));
  }
};

struct SampleConfig {
  int64_t every = 200;
  std::optional<std::vector<std::string>> prompts;
  int64_t tokens = 96;
  double temperature = 0.8, top_p = 0.95;
  template <class Visitor>
  void visit(Visitor& v) {
    v("every", every, "steps between samples; 0: only at the end", up_to(bounds::kSteps));
    v("prompts", prompts,
      "texts that the samples continue; none: the beginnings of three documents of the text; []: no samples");
    v("tokens", tokens, "tokens per sample", up_to(bounds::kSequence));
    v("temperature", temperature, "of the samples", up_to(1e6));
    v("top_p", top_p, "of the samples", up_to(1));
  }
};

}  // namespace ingot
