-- Asks traincost whether a job fits the GPUs that it asks for. Whatever goes wrong, the job is let through.

local SERVICE = "http://localhost:8000"
local SITE = "{}" -- parts of the question that hold for every job of this site, as JSON
local HEADER = "/etc/slurm/traincost.header" -- where the service asks for a key: Authorization: Bearer KEY
local CURL = "curl -q --silent --fail --noproxy '*' --connect-timeout 0.1 --max-time 0.15"
  .. " --header 'Content-Type: application/json' --data-binary @"

local function quoted(text)
  return '"' .. string.gsub(text, '[%c"\\]', function(letter)
    return string.format("\\u%04x", string.byte(letter))
  end) .. '"'
end

-- A number, a text, a list that is not empty or an object as JSON.
local function json(value)
  if type(value) ~= "table" then
    return type(value) == "number" and string.format("%d", value) or quoted(value)
  end
  local parts = {}
  for name, one in pairs(value) do
    parts[#parts + 1] = (#value > 0 and "" or quoted(name) .. ":") .. json(one)
  end
  local text = table.concat(parts, ",")
  return #value > 0 and "[" .. text .. "]" or "{" .. text .. "}"
end

-- Options of curl that send the key, where there is one; curl reads the file, so no list of processes shows the key.
local function key()
  local file = io.open(HEADER, "r")
  if not file then
    return ""
  end
  file:close()
  return " --header @" .. HEADER
end

-- What keeps curl from an answer, by its exit code.
local WITHOUT = {
  [6] = "the service's name is not known here",
  [7] = "nobody listens at the service's address",
  [22] = "the service refused the question: look at its log, and at the key",
  [28] = "the service took too long",
  [127] = "curl is not installed here",
}

-- Verdict, reason, id of the estimate, code of why it was not judged, and a list of warnings; nil and why where there is
-- no answer in time.
local function ask(job)
  local name = os.tmpname()
  local file = io.open(name, "w")
  file:write('{"question":', SITE, ",", string.sub(json(job), 2))
  file:close()
  local asking = CURL .. name .. key() .. " " .. SERVICE .. "/v1/adapters/slurm/check 2>/dev/null; printf '\\n%s' $?"
  local process = io.popen(asking)
  local answer, code = string.match(process:read("*a"), "^(.*)\n(%d+)$")
  process:close()
  os.remove(name)
  local verdict, reason, id, _, why, rest =
    string.match(answer or "", "^(%w+)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n(.*)$")
  if not verdict then
    return nil, WITHOUT[tonumber(code)] or "curl ended with " .. (code or "nothing")
  end
  local warnings = {}
  for line in string.gmatch(rest, "[^\n]+") do
    warnings[#warnings + 1] = line
  end
  return { verdict = verdict, reason = reason, id = id, why = why, warnings = warnings }
end

-- Tell whoever runs Slurm that a job was let through because nobody judged it.
local function unchecked(why)
  slurm.log_info("traincost: not checked: no answer: %s", why)
end

-- The comment of a job with the id of its estimate, or why there is none, instead of older ones.
local function commented(comment, answer)
  local mark = answer.id ~= "" and answer.id or "traincost:" .. answer.why
  local kept = string.gsub(string.gsub(comment or "", "%s*est_%x+", ""), "%s*traincost:[%w_]+", "")
  return (kept == "" and "" or kept .. " ") .. mark
end

-- Show an answer to the user who submits the job, line by line; whether the job may start.
local function show(answer, line)
  if answer.verdict ~= "ok" then
    line("traincost: %s: %s", answer.verdict, answer.reason)
  end
  for _, warning in ipairs(answer.warnings) do
    line("traincost: %s", warning)
  end
  return answer.verdict == "deny" and slurm.ERROR or slurm.SUCCESS
end

local MOST_VARIABLES = 64
local SECRETS = { "KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH" }

local function is_secret(name)
  for _, part in ipairs(SECRETS) do
    if string.find(string.upper(name), part, 1, true) then
      return true
    end
  end
  return false
end

-- Variables of the user's environment that a script names, without secrets; a script that names none needs none.
local function variables_of(script, value_of)
  local found, count = {}, 0
  for name in string.gmatch(script, "%$[{!#]?([%a_][%w_]*)") do
    local value = found[name] == nil and count < MOST_VARIABLES and not is_secret(name) and value_of(name)
    if type(value) == "string" and #value < 1024 then
      found[name], count = value, count + 1
    end
  end
  return count > 0 and found or nil
end
