-- Asks traincost whether a job fits the GPUs that it asks for. Whatever goes wrong, the job is let through.

local SERVICE = "http://localhost:8000"
local SITE = "{}" -- parts of the question that hold for every job of this site, as JSON
local HEADER = "/etc/slurm/traincost.header" -- where the service asks for a key: Authorization: Bearer KEY
local PATIENCE = "--connect-timeout 0.1 --max-time 0.15"
local CURL = "curl -q --silent --fail --noproxy '*' " .. PATIENCE
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

-- The content of a file; nil where there is none.
local function content_of(name)
  local file = io.open(name, "r")
  local text = file and file:read("*a")
  if file then
    file:close()
  end
  return text
end

-- A new file that its owner alone may read.
local function written(...)
  local name = os.tmpname()
  local file = io.open(name, "w")
  file:write(...)
  file:close()
  return name
end

-- What a command prints, and its exit code.
local function output_of(command)
  local process = io.popen(command .. " 2>/dev/null; printf '\\n%s' $?")
  local text, code = string.match(process:read("*a"), "^(.*)\n(%d+)$")
  process:close()
  return text or "", tonumber(code)
end

-- The answer to a body, and the exit code, by curl; it reads the key from its file, so no list of processes shows it.
local function by_curl(path, body)
  local name = written(body)
  local key = content_of(HEADER) and " --header @" .. HEADER or ""
  local text, code = output_of(CURL .. name .. key .. " " .. SERVICE .. path)
  os.remove(name)
  return text, code
end

-- The same by bash, which starts in a third of the time; nil where curl has to ask: over HTTPS, or through a proxy. With
-- -p bash takes nothing from the user's environment.
local function by_bash(path, body)
  local host, port = string.match(SERVICE, "^http://([%w.-]+):(%d+)$")
  if not host then
    return nil
  end
  local key = string.gsub((content_of(HEADER) or "") .. "\n", "%s*[\r\n]+", "\r\n")
  local name = written(
    "POST ", path, " HTTP/1.1\r\nHost: ", host, ":", port, "\r\nConnection: close\r\nContent-Type: application/json\r\n",
    "Content-Length: ", tostring(#body), "\r\n", key == "\r\n" and "" or key, "\r\n", body
  )
  local seconds = string.match(PATIENCE, "max%-time ([%d.]+)") or "60"
  local text, code = output_of("LC_ALL=C timeout " .. seconds .. " bash -p -c '"
    .. "exec 3<>/dev/tcp/" .. host .. "/" .. port .. " || exit 7; request=$(<" .. name .. "); printf %s \"$request\" >&3; "
    .. "IFS= read -r -d \"\" -u 3 answer; printf %s \"$answer\"'")
  os.remove(name)
  if code == 7 or code == 124 then
    return "", code == 7 and 7 or 28
  end
  local status, head, answer = string.match(text, "^HTTP/1%.%d (%d+)(.-)\r\n\r\n(.*)$")
  if status ~= "200" and status ~= nil then
    return "", 22
  end
  if not status or string.find(string.lower(head), "transfer-encoding", 1, true) then
    return nil
  end
  return answer, 0
end

-- What keeps from an answer, by the exit code of curl.
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
  local path, body = "/v1/adapters/slurm/check", '{"question":' .. SITE .. "," .. string.sub(json(job), 2)
  local answer, code = by_bash(path, body)
  if not answer then
    answer, code = by_curl(path, body)
  end
  local verdict, reason, id, _, why, rest =
    string.match(answer, "^(%w+)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n(.*)$")
  if not verdict then
    return nil, WITHOUT[code] or "curl ended with " .. (code or "nothing")
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
