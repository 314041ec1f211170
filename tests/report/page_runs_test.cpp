// The report in a browser (headless Chromium): readable and without overflow on a phone and on a desktop.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "report/plot.h"
#include "report/post_run.h"
#include "report/synthetic_run.h"
#include "support/browser.h"
#include "support/support.h"

namespace ingot::page_runs_test {

const char* const kMeasure = R"js(
const frame = document.querySelector('iframe');
frame.addEventListener('load', () => setTimeout(() => {
  const page = frame.contentDocument, width = frame.clientWidth;
  for (const d of page.querySelectorAll('details')) d.open = true;
  setTimeout(() => {
    const small = [], wide = [];
    const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode.textContent.trim(), e = walker.currentNode.parentElement;
      if (!text || e.closest('script, style, noscript') || !e.getClientRects().length) continue;
      if (parseFloat(frame.contentWindow.getComputedStyle(e).fontSize) < 9) small.push(text);
      const r = e.getBoundingClientRect();
      if (r.right > width + 1 && !e.closest('pre, .scroll, select')) wide.push(text);
    }
    const result = {small, wide, scroll: page.documentElement.scrollWidth, width,
      plots: page.querySelectorAll('.plot').length,
      drawn: page.querySelectorAll('.plot svg path.line').length};
    document.getElementById('result').textContent = JSON.stringify(result);
  }, 500);
}, 500));
)js";

nlohmann::json measured(const std::string& program, const std::string& html, int width) {
  test::TempDir folder;
  test::write_text(folder / "page.html",
                   "<!doctype html><meta charset=utf-8><pre id=result></pre><iframe style='border:0;width:" +
                       std::to_string(width) + "px;height:900px' srcdoc=\"" + escape_html(html) +
                       "\"></iframe><script>" + kMeasure + "</script>");
  const std::string command = program +
                              " --headless=new --no-sandbox --disable-gpu --virtual-time-budget=8000"
                              " --window-size=1400,1000 --user-data-dir=" +
                              folder / "profile" + " --dump-dom file://" + folder / "page.html" + " > " +
                              folder / "dom" + " 2> " + folder / "errors";
  EXPECT_EQ(std::system(command.c_str()), 0) << test::read_text(folder / "errors");
  const std::string dom = test::read_text(folder / "dom"), mark = "<pre id=\"result\">";
  const size_t begin = dom.find(mark);
  const size_t end = dom.find("</pre>", begin);
  return nlohmann::json::parse(dom.substr(begin + mark.size(), end - begin - mark.size()), nullptr, false);
}

void expect_readable(const std::string& program, const std::string& html) {
  for (const int width : {360, 800, 1280}) {
    const nlohmann::json found = measured(program, html, width);
    ASSERT_TRUE(found.is_object()) << "the page measured nothing at " << width;
    EXPECT_EQ(found["width"], width);
    EXPECT_LE(found["scroll"], width) << "the page scrolls sideways";
    EXPECT_EQ(found["small"].dump(), "[]") << "texts under 9 pixels at " << width;
    EXPECT_EQ(found["wide"].dump(), "[]") << "texts beyond the edge at " << width;
    EXPECT_GT(found["plots"], 8);
    EXPECT_GE(found["drawn"], found["plots"]);
  }
}

TEST(Page, IsReadableOnAPhoneAndOnADesktop) {
  const std::string program = test::Browser::program();
  if (program.empty()) GTEST_SKIP() << "no Chromium here: scripts/setup --tests installs it";
  ReportData run = test::synthetic_run(600);
  for (MetricRow& row : run.rows) row.set("a_metric_with_a_name_that_is_rather_long/and_a_line", 1.0);
  run.record.set("machine", "a value without blanks", std::string(120, 'x'));
  run.samples.push_back({600, "A line without blanks: ", std::string(300, 'y')});
  expect_readable(program, render_report(run));
  expect_readable(program, render_report(test::post_run()));
  run.label = "runs/a/folder/with/a/long/name";
  ReportData other = test::synthetic_run(300);
  other.label = "runs/other";
  const std::vector<ReportData> both{run, other};
  expect_readable(program, render_comparison(both));
}

}  // namespace ingot::page_runs_test
