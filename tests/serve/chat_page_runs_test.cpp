// The server's page in a browser, against the server: a conversation with thinking, a tool and several
// answers on a phone, a tablet and a desktop. The model is written by hand, so that what it says is known.
#include <gtest/gtest.h>

#include <cmath>

#include "support/browser.h"
#include "support/running_server.h"

namespace ingot::test::chat_page_runs_test {

using Json = nlohmann::json;

constexpr int64_t kContext = 1536;

/// A model whose next token depends on the position alone: position p is a unit vector, and column p of the
/// head holds the logits of the token after it. All else is zero.
class ScriptedModel {
 public:
  explicit ScriptedModel(int64_t vocab) : model_(config(vocab), Precision::f32()) {
    fill("position_embed.weight", [](int64_t i) { return i / kContext == i % kContext ? 1.0f : 0.0f; });
    fill("final_norm.weight", [](int64_t) { return 1 / std::sqrt(static_cast<float>(kContext)); });
  }
  const Model& model() const { return model_; }
  /// From token `at` on: each time one of these ids, all as likely.
  void say(size_t at, const std::vector<std::vector<int32_t>>& ids) {
    const Tensor head = model_.weights().master(model_.decoder().head_index());
    for (const std::vector<int32_t>& choice : ids) {
      for (const int32_t id : choice) head.as<float>()[id * kContext + static_cast<int64_t>(at) - 1] = 30;
      ++at;
    }
    model_.weights().changed();
  }

 private:
  static ModelConfig config(int64_t vocab) {
    ModelConfig m;
    m.vocab = vocab, m.width = m.context = kContext;
    m.layers = m.heads = m.kv_heads = 1;
    m.head_width = m.hidden = 16;
    m.position = PositionKind::learned;
    m.norm_eps = 1e-12;
    return m;
  }
  template <class F>
  void fill(const char* name, F&& f) {
    const int index = model_.weights().table().find(name);
    const Tensor t = model_.weights().master(index);
    for (int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = f(i);
  }
  Model model_;
};

Tokenizer character_tokenizer() {
  std::string all = "\n";
  for (char c = ' '; c <= '~'; ++c) all += c;
  const std::vector<std::string> specials = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  return Tokenizer::from_characters(all, specials);
}

/// The server of a scripted model.
class ScriptedServer {
 public:
  explicit ScriptedServer(bool chats = true)
      : tokenizer_(character_tokenizer()),
        template_(chat::ChatTemplate::shipped("chatml-think")),
        scripted_(tokenizer_.vocab_size()),
        server_(scripted_.model(), tokenizer_, {std::nullopt, {end_id()}},
                chats ? std::optional(template_) : std::nullopt, {}, {.model = "scripted"}) {}
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()) + "/"; }
  /// What the model says behind `prompt` tokens: `text`, then eight of `choices`, then its turn ends. To be
  /// called before a client asks anything.
  void reply(size_t prompt, const std::string& text, const std::string& choices = "") {
    std::vector<std::vector<int32_t>> ids;
    for (const int32_t id : tokenizer_.encode(text)) ids.push_back({id});
    if (!choices.empty()) ids.insert(ids.end(), 8, tokenizer_.encode(choices));
    ids.push_back({end_id()});
    scripted_.say(prompt, ids);
  }
  void reply_to(const Json& conversation, const std::string& text, const std::string& choices = "") {
    const chat::Conversation c = chat::read_conversation(conversation.dump(), "the test");
    reply(template_.prompt_ids(c, tokenizer_).size(), text, choices);
  }

 private:
  int32_t end_id() const { return *tokenizer_.special_id("<|im_end|>"); }
  const Tokenizer tokenizer_;
  const chat::ChatTemplate template_;
  ScriptedModel scripted_;
  ServerThread server_;
};

const char* const kTools =
    R"([{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{}}}}])";
const char* const kMarkup = "<img src=x onerror=alert(1)> is text. ";

/// The turns of the conversation that every test holds.
void write_script(ScriptedServer& server) {
  std::string answer = kMarkup;
  for (int i = 0; i < 6; ++i) answer += "It is four, said model " + std::to_string(i) + (i < 5 ? ". " : ".");
  Json row = {{"messages", {{{"role", "user"}, {"content", "What is two and two?"}}}}};
  const auto add = [&](Json message) { row["messages"].push_back(std::move(message)); };
  const auto said = [&](const std::string& role, const std::string& content) {
    add({{"role", role}, {"content", content}});
  };
  server.reply_to(row, "<think>\nTwo and two.\n</think>\n\n" + answer);
  add({{"role", "assistant"}, {"content", answer}, {"reasoning_content", "Two and two."}});
  said("user", "And the weather?");
  row["tools"] = Json::parse(kTools);
  server.reply_to(row,
                  "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Lima\"}}\n</tool_call>");
  add({{"role", "assistant"},
       {"content", ""},
       {"tool_calls",
        {{{"id", "call"},
          {"type", "function"},
          {"function", {{"name", "weather"}, {"arguments", R"({"city": "Lima"})"}}}}}}});
  add({{"role", "tool"}, {"tool_call_id", "call"}, {"content", "grey"}});
  server.reply_to(row, "Lima is grey.");
  said("assistant", "Lima is grey.");
  said("user", "Choose.");
  server.reply_to(row, "I choose ", "abc");
}

/// The page in a browser.
class ChatPage {
 public:
  ChatPage(const std::string& url, int width) : width_(width), browser(dir_, width, 800) {
    browser.open(url);
    browser.wait_for("document.getElementById('model').textContent === 'scripted'");
    browser.value(R"js(window.lengths = new Set(); window.sent = [];
      new MutationObserver(() => lengths.add(document.getElementById('turns').textContent.length))
        .observe(document.getElementById('turns'), {childList: true, subtree: true, characterData: true});
      const ask = window.fetch;
      window.fetch = (url, how) => { if (how?.body) sent.push(JSON.parse(how.body)); return ask(url, how); };
      0)js");
  }
  ~ChatPage() { EXPECT_TRUE(browser.problems().empty()) << browser.problems().front(); }
  void send(const std::string& text) {
    browser.point_at("#text", true);
    browser.type(text);
    browser.press_enter();
    answered();
  }
  /// Waits for the next answer.
  void answered() { browser.wait_for("document.body.dataset.done === '" + std::to_string(++turns_) + "'"); }
  void set(const std::string& id, const std::string& value) {
    browser.value("document.getElementById('" + id + "').value = " + Json(value).dump());
  }
  /// Text of the first element of the newest turn that matches.
  std::string text(const std::string& selector) {
    return browser.value("[...document.querySelectorAll('.turn')].at(-1).querySelector('" + selector +
                         "')?.textContent ?? 'there is none'");
  }
  /// Pixels: what is under the pointer must not move when numbers come into the head.
  double head_height() {
    return browser.value("document.querySelector('header').getBoundingClientRect().height");
  }
  void expect_that_all_fits() {
    const Json found = browser.value(R"js((() => {
      const small = [], wide = [], width = document.documentElement.clientWidth;
      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const text = walker.currentNode.textContent.trim(), e = walker.currentNode.parentElement;
        if (!text || e.closest('script') || !e.getClientRects().length) continue;
        if (parseFloat(getComputedStyle(e).fontSize) < 9) small.push(text);
        if (e.getBoundingClientRect().right > width + 1) wide.push(text);
      }
      return {small, wide, scroll: document.documentElement.scrollWidth};
    })())js");
    EXPECT_EQ(found["small"].dump(), "[]") << "texts under 9 pixels at " << width_;
    EXPECT_EQ(found["wide"].dump(), "[]") << "texts beyond the edge at " << width_;
    EXPECT_LE(found["scroll"], width_) << "the page scrolls sideways";
  }

 private:
  TempDir dir_;
  int width_, turns_ = 0;

 public:
  Browser browser;
};

class ChatPageTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (Browser::program().empty()) GTEST_SKIP() << "no Chromium here: scripts/setup --tests installs it";
  }
};

TEST_P(ChatPageTest, ShowsWhatTheModelDoes) {
  ScriptedServer server;
  write_script(server);
  ChatPage page(server.url(), GetParam());
  const double head_height = page.head_height();
  page.send("What is two and two?");
  EXPECT_GE(page.browser.value("lengths.size"), 5) << "the answer comes in one piece";
  EXPECT_EQ(page.text(".answer > span").substr(0, 60), std::string(kMarkup) + "It is four, said model");
  EXPECT_EQ(page.text(".thinking > div"), "Two and two.");
  EXPECT_EQ(page.browser.value("document.querySelector('.thinking').open"), false);
  EXPECT_EQ(page.browser.value("document.querySelector('#turns img')"), Json()) << "markup of a model";
  page.browser.point_at(".thinking > summary", true);
  EXPECT_EQ(page.browser.value("document.querySelector('.thinking').open"), true);
  page.expect_that_all_fits();

  page.browser.point_at("#settings > summary", true);
  page.expect_that_all_fits();
  page.set("tools", kTools);
  page.browser.point_at("#settings > summary", true);
  page.send("And the weather?");
  EXPECT_EQ(page.text(".call > b"), "weather");
  EXPECT_EQ(page.text(".call > pre"), R"({"city":"Lima"})");
  page.browser.point_at(".call input", true);
  page.browser.type("grey");
  page.browser.press_enter();
  page.answered();
  EXPECT_EQ(page.text(".answer > span"), "Lima is grey.");
  page.expect_that_all_fits();
  page.browser.wait_for("document.querySelector('#rate polyline').points.length > 0");
  EXPECT_NE(page.browser.value("document.getElementById('speed').textContent"), "");
  EXPECT_EQ(page.head_height(), head_height);
}

TEST_P(ChatPageTest, ShowsSeveralAnswersAndTheAlternativesOfAToken) {
  ScriptedServer server;
  server.reply_to({{"messages", {{{"role", "user"}, {"content", "Choose."}}}}}, "I choose ", "abc");
  ChatPage page(server.url(), GetParam());
  page.set("n", "3");
  page.set("seed", "5");
  page.browser.value("document.getElementById('tokens').checked = true");
  page.send("Choose.");
  const Json places = page.browser.value(R"js([...document.querySelectorAll('.answer')].map(e => {
    const r = e.getBoundingClientRect(); 
    return [r.left, r.top, e.querySelector(':scope > span').textContent]; }))js");
  ASSERT_EQ(places.size(), 3u);
  EXPECT_NE(places[0][2], places[1][2]);
  const auto column = [&](size_t i) { return places[i][0]; };
  const auto row = [&](size_t i) { return places[i][1]; };
  EXPECT_EQ(row(0) == row(1), GetParam() > 360) << places;
  EXPECT_EQ(row(0) == row(2), GetParam() > 800) << places;
  EXPECT_EQ(column(0) == column(1), GetParam() == 360) << places;
  page.expect_that_all_fits();
  // A choice of three: a third each. A page that still scrolls moves the token away from the pointer.
  const char* const hidden = "document.getElementById('tip').hidden";
  for (int tries = 0; tries < 100 && page.browser.value(hidden) == true; ++tries) {
    page.browser.point_at("h1");
    page.browser.point_at(".token.t1");
  }
  EXPECT_EQ(page.browser.value(hidden), false);
  const std::string tip = page.browser.value("document.getElementById('tip').textContent");
  for (const char* part : {"\"a\"", "\"b\"", "\"c\"", "33.3 %"})
    EXPECT_NE(tip.find(part), std::string::npos) << tip;
  page.expect_that_all_fits();
  page.browser.point_at("h1");
  EXPECT_EQ(page.browser.value(hidden), true);
  // The answer that is clicked is the one that the conversation continues with.
  page.browser.point_at(".answer:nth-child(2)", true);
  EXPECT_EQ(page.browser.value("[...document.querySelectorAll('.answer')].map(e => e.matches('.kept'))"),
            Json::parse("[false, true, false]"));
  page.set("max_tokens", "3");
  page.set("n", "1");
  page.send("And on.");
  EXPECT_EQ(page.browser.value("sent.at(-1).messages.map(m => m.content)"),
            Json({"Choose.", places[1][2], "And on."}));
  EXPECT_EQ(page.text(".end"), "(budget reached)");
}

INSTANTIATE_TEST_SUITE_P(Widths, ChatPageTest, ::testing::Values(360, 800, 1280));

TEST(ChatPage, OfABaseModelContinuesTheText) {
  if (Browser::program().empty()) GTEST_SKIP() << "no Chromium here: scripts/setup --tests installs it";
  ScriptedServer server(false);
  server.reply(4, " upon a time");
  ChatPage page(server.url(), 800);
  page.send("Once");
  EXPECT_EQ(page.text(".answer > span"), " upon a time");
  EXPECT_EQ(page.browser.value("getComputedStyle(document.querySelector('.chat-only')).display"), "none");
}

}  // namespace ingot::test::chat_page_runs_test
