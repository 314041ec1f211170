// What requests get from an engine, in a form that can be compared bit for bit.
#pragma once
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "infer/engine.h"

namespace ingot::test {

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// One sample.
struct Sampled {
  std::vector<int32_t> ids;
  std::vector<float> logprobs, sampled;
  std::vector<std::vector<int32_t>> kept;
  std::vector<std::vector<uint16_t>> routes;
  std::vector<bool> forced, thinking;
  std::vector<uint64_t> weights;
  std::string text;
  Finished end;

  /// All but the usage, which says how it was computed.
  bool operator==(const Sampled& o) const {
    return ids == o.ids && same_bits(logprobs, o.logprobs) && same_bits(sampled, o.sampled) &&
           kept == o.kept && routes == o.routes && forced == o.forced && thinking == o.thinking &&
           text == o.text && end.reason == o.end.reason;
  }
};

struct Answer {
  std::map<int64_t, Sampled> samples;
  std::vector<float> prompt;
  std::vector<std::vector<TokenProbability>> prompt_top;
  std::vector<uint16_t> prompt_routes;
  int64_t from = 0;
  int64_t scored = 0, last = 0;  ///< events

  bool operator==(const Answer& o) const {
    return samples == o.samples && same_bits(prompt, o.prompt) && prompt_routes == o.prompt_routes &&
           scored == o.scored && last == o.last;
  }
};

/// Fills an answer, which must outlive the request.
inline Sink into(Answer& a) {
  Sink sink;
  sink.prompt = [&a](const PromptScores& p) {
    a.prompt.assign(p.logprob.begin(), p.logprob.end());
    a.prompt_top.assign(p.top.begin(), p.top.end());
    a.prompt_routes.assign(p.routes.begin(), p.routes.end());
    a.from = p.from, ++a.scored;
  };
  sink.token = [&a](const TokenEvent& e) {
    Sampled& s = a.samples[e.sample];
    s.ids.push_back(e.id), s.logprobs.push_back(e.logprob), s.sampled.push_back(e.sampled_logprob);
    s.kept.emplace_back(e.kept.begin(), e.kept.end());
    s.routes.emplace_back(e.routes.begin(), e.routes.end());
    s.forced.push_back(e.forced), s.thinking.push_back(e.thinking), s.weights.push_back(e.weights);
    s.text += e.text;
  };
  sink.finished = [&a](const Finished& f) {
    a.samples[f.sample].text += f.text;
    a.samples[f.sample].end = f;
    a.last += f.last ? 1 : 0;
  };
  return sink;
}

/// The answer of a request that has the engine for itself.
inline Answer answer_of(Engine& engine, const Request& r) {
  Answer a;
  engine.submit(r, into(a));
  engine.run_until_idle();
  return a;
}

/// The answers of requests that run together.
inline std::vector<Answer> answers_of(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Answer> answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) engine.submit(requests[i], into(answers[i]));
  engine.run_until_idle();
  return answers;
}

}  // namespace ingot::test
