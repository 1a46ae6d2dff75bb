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

-- Verdict, reason, id of the estimate and minutes to ask for; nil where there is no answer in time.
local function ask(job)
  local fields = { '"question":' .. SITE }
  for name, value in pairs(job) do
    fields[#fields + 1] = quoted(name) .. ":" .. (type(value) == "number" and string.format("%d", value) or quoted(value))
  end
  local name = os.tmpname()
  local file = io.open(name, "w")
  file:write("{", table.concat(fields, ","), "}")
  file:close()
  local process = io.popen(CURL .. name .. key() .. " " .. SERVICE .. "/v1/adapters/slurm/check 2>/dev/null")
  local answer = process:read("*a")
  process:close()
  os.remove(name)
  return string.match(answer, "^(%w+)\n([^\n]*)\n([^\n]*)\n([^\n]*)")
end

-- The comment of a job with the id of its estimate instead of an older one.
local function commented(comment, id)
  local kept = string.gsub(comment or "", "%s*est_%x+", "")
  return (kept == "" and "" or kept .. " ") .. id
end
