// See shipped_templates.h. chatml-think: ChatML's turns with reasoning between think tags, tools as Hermes
// writes them, and /no_think (in the system's text, or enable_thinking = false), which closes the reasoning
// at once.
#include "chat/shipped_templates.h"

namespace ingot::chat {
namespace {

constexpr std::string_view kChatmlThink =
    R"jinja({#- Turns are <|im_start|>role, a newline, text, <|im_end|>. -#}
{%- set ns = namespace(system='', think=enable_thinking | default(true), last_user=-1) %}
{%- set rest = messages %}
{%- if messages and messages[0].role in ['system', 'developer'] %}
    {%- set ns.system = messages[0].content | default('', true) %}
    {%- set rest = messages[1:] %}
{%- endif %}
{%- if '/no_think' in ns.system %}
    {%- set ns.think = false %}
    {%- set ns.system = ns.system.replace('/no_think', '') | trim %}
{%- elif '/think' in ns.system %}
    {%- set ns.think = true %}
    {%- set ns.system = ns.system.replace('/think', '') | trim %}
{%- endif %}
{%- if ns.system or tools %}
    {{- '<|im_start|>system\n' + ns.system }}
    {%- if tools %}
        {{- '\n\n' if ns.system else '' }}
        {{- 'You may call functions. Their schemas stand in <tools></tools>:\n<tools>' }}
        {%- for tool in tools %}
            {{- '\n' + tool | tojson }}
        {%- endfor %}
        {{- '\n</tools>\nA call is a JSON object in <tool_call></tool_call>:' }}
        {{- '\n<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call>' }}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- for message in rest %}
    {%- if message.role == 'user' %}
        {%- set ns.last_user = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in rest %}
    {%- set content = message.content | default('', true) %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- if message.reasoning_content and loop.index0 > ns.last_user %}
            {{- '<think>\n' + message.reasoning_content.strip('\n') + '\n</think>\n\n' }}
        {%- elif not ns.think and loop.index0 > ns.last_user %}
            {{- '<think>\n\n</think>\n\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls | default([], true) %}
            {{- '\n' if content or not loop.first else '' }}
            {%- set arguments = call.function.arguments %}
            {{- '<tool_call>\n{"name": ' + call.function.name | tojson + ', "arguments": ' }}
            {{- arguments if arguments is string else arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or rest[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
        {%- if loop.last or rest[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if not ns.think %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
)jinja";

constexpr ShippedTemplate kTemplates[] = {{"chatml-think", kChatmlThink, "<|im_end|>"}};

}  // namespace

std::span<const ShippedTemplate> shipped_templates() {
  return kTemplates;
}

}  // namespace ingot::chat
