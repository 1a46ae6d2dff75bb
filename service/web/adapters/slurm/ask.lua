-- Asks traincost whether a job fits the GPUs that it asks for. Whatever goes wrong, the job is let through.

local SERVICE = "http://localhost:8000"
local SITE = "{}" -- parts of the question that hold for every job of this site, as JSON
local HEADER = "/etc/slurm/traincost.header" -- where the service asks for a key: Authorization: Bearer KEY
local CURL = "curl --silent --fail --noproxy '*' --connect-timeout 0.1 --max-time 0.15"
  .. " --header 'Content-Type: application/json' --data-binary @"

local function quoted(text)
  return '"' .. string.gsub(text, '[%c"\\]', function(letter)
    return string.format("\\u%04x", string.byte(letter))
  end) .. '"'
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

-- Verdict, reason, id of the estimate and minutes to ask for; nil and why where there is no answer in time.
local function ask(job)
  local fields = { '"question":' .. SITE }
  for name, value in pairs(job) do
    fields[#fields + 1] = quoted(name) .. ":" .. (type(value) == "number" and string.format("%d", value) or quoted(value))
  end
  local name = os.tmpname()
  local file = io.open(name, "w")
  file:write("{", table.concat(fields, ","), "}")
  file:close()
  local asking = CURL .. name .. key() .. " " .. SERVICE .. "/v1/adapters/slurm/check 2>/dev/null; printf '\\n%s' $?"
  local process = io.popen(asking)
  local answer, code = string.match(process:read("*a"), "^(.*)\n(%d+)$")
  process:close()
  os.remove(name)
  local verdict, reason, id, minutes = string.match(answer or "", "^(%w+)\n([^\n]*)\n([^\n]*)\n([^\n]*)")
  if not verdict then
    return nil, WITHOUT[tonumber(code)] or "curl ended with " .. (code or "nothing")
  end
  return verdict, reason, id, minutes
end

-- Tell whoever runs Slurm that a job was let through because nobody judged it.
local function unchecked(why)
  slurm.log_info("traincost: not checked: no answer: %s", why)
end

-- The comment of a job with the id of its estimate instead of an older one.
local function commented(comment, id)
  local kept = string.gsub(comment or "", "%s*est_%x+", "")
  return (kept == "" and "" or kept .. " ") .. id
end
