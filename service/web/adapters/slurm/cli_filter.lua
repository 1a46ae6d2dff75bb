
-- The script of an sbatch; nil where it comes from elsewhere.
local function script_of(options)
  local file = options.type == "sbatch" and options.argv and options.argv[1] and io.open(options.argv[1], "r")
  if not file then
    return nil
  end
  local text = file:read("*a")
  file:close()
  return text
end

-- Files that the script names are sent with it: at most so many, so many bytes in all, and of these kinds. They are read
-- as the user who submits, so none that this user may not read; MOST_FILES = 0 sends none. A program in Python is sent
-- where it has that text.
local MOST_FILES = 8
local MOST_FILE_BYTES = 65536
local KINDS = { json = true, yaml = true, yml = true, toml = true, sh = true, py = "megatron.bridge" }

-- A script with the variables that it sets to plain words, or that the user has, in their places.
local function with_variables(script)
  local values = {}
  for name, value in string.gmatch(script, "([%a_][%w_]*)=[\"']?([%w_./${}-]+)") do
    values[name] = values[name] or #value < 256 and value or nil
  end
  local function value_of(name)
    return values[name] or os.getenv(name)
  end
  for _ = 1, 3 do
    script = string.gsub(string.sub(script, 1, 262144), "%$([%a_][%w_]*)", value_of)
    script = string.gsub(script, "%${([%a_][%w_]*)}", value_of)
  end
  return script
end

-- A file's text; nil where it cannot be read, is longer than that, or is no text.
local function short_text_of(path, most)
  local file = io.open(path, "r")
  local size = file and file:seek("end")
  local text = size and size <= most and file:seek("set") == 0 and file:read("*a")
  if file then
    file:close()
  end
  return text and not string.find(text, "%z") and string.gsub(text, "[\128-\255]", "?") or nil
end

-- The files that a script names, by the names that it uses; paths begin at the directory in which it will run.
local function files_of(script, directory)
  local found, count, left = {}, 0, MOST_FILE_BYTES
  for name in string.gmatch(with_variables(script), "[%w_./-]+") do
    local kind = string.match(name, "[%w_-]%.(%l+)$")
    if count < MOST_FILES and KINDS[kind] and not found[name] and not is_secret(string.match(name, "[^/]+$")) then
      local text = short_text_of(string.sub(name, 1, 1) == "/" and name or directory .. "/" .. name, left)
      if text and (KINDS[kind] == true or string.find(text, KINDS[kind], 1, true)) then
        found[name], count, left = text, count + 1, left - #text
      end
    end
  end
  return count > 0 and found or nil
end

local function whole(text)
  return tonumber(string.match(text or "", "^%d+"))
end

local function minutes_of(text)
  local days, rest = string.match(text or "", "^(%d+)-(.*)$")
  local parts = {}
  for part in string.gmatch(rest or text or "", "%d+") do
    parts[#parts + 1] = tonumber(part)
  end
  if days then
    return days * 1440 + (parts[1] or 0) * 60 + (parts[2] or 0)
  end
  return #parts == 3 and parts[1] * 60 + parts[2] or parts[1]
end

-- From here on Slurm means that nobody gave a time, or that there is no limit.
local MOST_MINUTES = 16777216

-- Tasks of the job; --ntasks is 1 where nobody gave it, and --ntasks-per-node, or else one for each node, counts.
local function tasks_of(options, nodes)
  local tasks = whole(options.ntasks) or 1
  return tasks > 1 and tasks or nodes * (whole(options["ntasks-per-node"]) or 1)
end

-- Words after the script's name, as a list.
local function arguments_of(options)
  local words = {}
  for place = 2, #options.argv do
    words[place - 1] = options.argv[place]
  end
  return #words > 0 and words or nil
end

-- Whether the command line separates components of a heterogeneous job, as in sbatch -N1 : -N2 script.
local function has_components()
  local file = io.open("/proc/self/cmdline", "r")
  local words = file and file:read("*a") or ""
  if file then
    file:close()
  end
  return string.find(words, "\0:\0", 1, true) ~= nil
end

-- Whether the job may be submitted; runs in the user's own sbatch, so nobody else waits, and it binds nobody.
local function judge(options, offset)
  local script = script_of(options)
  local per_node, per_job, per_task = options["gpus-per-node"], options["gpus"], options["gpus-per-task"]
  local per_socket = options["gpus-per-socket"]
  if not script or not (per_node or per_job or per_task or per_socket or options.gres) then
    return slurm.SUCCESS
  end
  local nodes = whole(options.nodes) or 1
  local minutes = minutes_of(options.time)
  local answer, why = ask({
    script = script,
    arguments = arguments_of(options),
    files = files_of(script, options.chdir or "."),
    environment = options.export ~= "NONE" and variables_of(script, os.getenv) or nil,
    nodes = nodes,
    tasks = tasks_of(options, nodes),
    tasks_per_node = whole(options["ntasks-per-node"]),
    component = (offset > 0 or has_components()) and offset or nil,
    tres_per_node = per_node and "gpu:" .. per_node or options.gres or "",
    tres_per_job = per_job and "gpu:" .. per_job or "",
    tres_per_task = per_task and "gpu:" .. per_task or "",
    tres_per_socket = per_socket and "gpu:" .. per_socket or "",
    time_limit_minutes = minutes and minutes > 0 and minutes < MOST_MINUTES and minutes or nil,
  })
  if not answer then
    unchecked(why)
    return slurm.SUCCESS
  end
  if answer.id ~= "" or answer.why ~= "" then
    options.comment = commented(options.comment, answer)
  end
  return show(answer, slurm.log_error)
end

function slurm_cli_setup_defaults(options, early)
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
  local done, code = pcall(judge, options, offset)
  if not done then
    unchecked(tostring(code))
  end
  return done and code or slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job, step)
  return slurm.SUCCESS
end
