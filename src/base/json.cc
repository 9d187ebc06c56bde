// The JSON facade's fast path: simdjson finds the tokens, we build the tree. What simdjson refuses goes to the
// parser of Python's dialect in json_python.c, which either accepts it (NaN, lone surrogates) or says where it is wrong.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

// Errors are values here: without this a result may be read unchecked, and then throws.
#define SIMDJSON_EXCEPTIONS 0
#include <simdjson.h>

extern "C" {
#include "base/json.h"
#include "base/json_python.h"
}

namespace {

namespace od = simdjson::ondemand;

// Children are gathered on a stack shared by all levels, then copied into the arena at their final size.
struct builder {
    lvn_arena *arena;
    std::vector<lvn_json> items;
    std::vector<lvn_json_member> members;
};

bool build(builder &b, od::value value, lvn_json *out, int depth);

lvn_str copy(lvn_arena *arena, std::string_view text)
{
    return lvn_arena_dup(arena, lvn_str{text.data() ? text.data() : "", text.size()});
}

bool build_array(builder &b, od::array array, lvn_json *out, int depth)
{
    size_t base = b.items.size();
    for (auto element : array) {
        od::value value;
        lvn_json item;
        if (std::move(element).get(value) || !build(b, value, &item, depth + 1))
            return false;
        b.items.push_back(item);
    }
    size_t count = b.items.size() - base;
    out->kind = LVN_JSON_ARRAY;
    out->array.count = count;
    out->array.items = static_cast<lvn_json *>(lvn_arena_array(b.arena, count, sizeof(lvn_json)));
    if (count)
        std::memcpy(out->array.items, b.items.data() + base, count * sizeof(lvn_json));
    b.items.resize(base);
    return true;
}

bool build_object(builder &b, od::object object, lvn_json *out, int depth)
{
    size_t base = b.members.size();
    for (auto field_result : object) {
        od::field field;
        std::string_view key;
        lvn_json_member member;
        if (std::move(field_result).get(field) || field.unescaped_key().get(key))
            return false;
        member.key = copy(b.arena, key);
        if (!build(b, field.value(), &member.value, depth + 1))
            return false;
        b.members.push_back(member);
    }
    size_t count = b.members.size() - base;
    out->kind = LVN_JSON_OBJECT;
    out->object.members =
        static_cast<lvn_json_member *>(lvn_arena_array(b.arena, count, sizeof(lvn_json_member)));
    if (count)
        std::memcpy(out->object.members, b.members.data() + base, count * sizeof(lvn_json_member));
    b.members.resize(base);
    out->object.count = lvn_json_drop_repeated_keys(out->object.members, count);
    return true;
}

// `token` is one scalar with blanks behind it, as simdjson cuts it out.
bool build_scalar(lvn_arena *arena, std::string_view token, lvn_json *out)
{
    while (!token.empty() && (token.back() == ' ' || token.back() == '\n' || token.back() == '\r' || token.back() == '\t'))
        token.remove_suffix(1);
    return lvn_json_python_scalar(arena, lvn_str{token.data(), token.size()}, out) == LVN_OK;
}

bool build(builder &b, od::value value, lvn_json *out, int depth)
{
    if (depth > LVN_JSON_MAX_DEPTH)
        return false;
    std::string_view token = value.raw_json_token();
    if (token.empty())
        return false;
    switch (token[0]) {
    case '{': {
        od::object object;
        return !value.get_object().get(object) && build_object(b, object, out, depth);
    }
    case '[': {
        od::array array;
        return !value.get_array().get(array) && build_array(b, array, out, depth);
    }
    case '"': {
        std::string_view text;
        if (value.get_string().get(text))
            return false;
        out->kind = LVN_JSON_STRING;
        out->string = copy(b.arena, text);
        return true;
    }
    case 'n':
        out->kind = LVN_JSON_NULL;
        return !value.is_null().get(out->boolean) && out->boolean; // false for a word that only begins like null
    case 't':
    case 'f':
        out->kind = LVN_JSON_BOOL;
        return !value.get_bool().get(out->boolean);
    default: {
        // Consume the token as a number so that the iterator moves on; our own reading keeps long integers exact.
        od::number ignored;
        if (value.get_number().get(ignored))
            return false;
        return build_scalar(b.arena, token, out);
    }
    }
}

bool parse_fast(lvn_arena *arena, lvn_str text, lvn_json *out)
{
    static thread_local od::parser parser;
    simdjson::padded_string padded(text.ptr, text.len);
    od::document document;
    if (parser.iterate(padded).get(document))
        return false;
    od::value root;
    if (document.get_value().get(root)) // fails for a scalar document, which the other parser takes
        return false;
    builder b{arena, {}, {}};
    // At the end of the text there is no current location; anything else is data behind the value.
    return build(b, root, out, 1) && document.current_location().error() == simdjson::OUT_OF_BOUNDS;
}

} // namespace

extern "C" lvn_code lvn_json_parse(lvn_arena *arena, lvn_str text, lvn_json *out, size_t *out_offset, lvn_err *err)
{
    if (text.len && parse_fast(arena, text, out))
        return LVN_OK;
    return lvn_json_python_parse(arena, text, out, out_offset, err);
}

// Python's repr(float): shortest digits that read back; plain notation for exponents -4..15.
extern "C" void lvn_json_write_double(lvn_buf *buf, double value)
{
    if (!std::isfinite(value)) {
        lvn_buf_lit(buf, "null");
        return;
    }
    char text[40];
    auto sci = std::to_chars(text, text + sizeof(text), value, std::chars_format::scientific);
    *sci.ptr = '\0';
    const char *e = std::strchr(text, 'e');
    int exponent = std::atoi(e + 1);
    if (exponent < -4 || exponent >= 16) {
        lvn_buf_append(buf, text, static_cast<size_t>(sci.ptr - text));
        return;
    }
    auto plain = std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed);
    lvn_buf_append(buf, text, static_cast<size_t>(plain.ptr - text));
    if (!std::memchr(text, '.', static_cast<size_t>(plain.ptr - text)))
        lvn_buf_lit(buf, ".0");
}
