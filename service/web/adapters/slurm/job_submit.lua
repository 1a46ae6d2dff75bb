
local function given(number)
  return number and number ~= slurm.NO_VAL and number ~= slurm.NO_VAL16 and number or nil
end

-- A number of at least one that was given.
local function counted(number)
  number = given(number)
  return number and number > 0 and number or nil
end

-- Words after the script's name, as a list.
local function arguments_of(job)
  local words = {}
  for place = 1, (given(job.argc) or 0) - 1 do
    words[place] = job.argv[place]
  end
  return #words > 0 and words or nil
end

-- Reasons for which a job is not judged here and may have been by cli_filter.lua, which reads files as the user. This hook
-- runs as slurmctld's user, who may read other files than the one who submits, so it reads none.
local IN_FILES = { missing_file = true, absent_file = true, absent_script = true }

-- Whether the job may be queued; runs in slurmctld, for every job.
local function judge(job)
  local tres = {}
  for _, name in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }) do
    tres[name] = job[name] or ""
  end
  if not job.script or not string.find(table.concat({ tres.tres_per_node, tres.tres_per_job, tres.tres_per_task,
      tres.tres_per_socket }), "gpu") then
    return slurm.SUCCESS
  end
  local minutes = counted(job.time_limit)
  local answer, why = ask({
    script = job.script,
    arguments = arguments_of(job),
    environment = variables_of(job.script, function(name)
      return job.environment and job.environment[name]
    end),
    tres_per_node = tres.tres_per_node,
    tres_per_job = tres.tres_per_job,
    tres_per_task = tres.tres_per_task,
    tres_per_socket = tres.tres_per_socket,
    nodes = counted(job.min_nodes),
    tasks = counted(job.num_tasks),
    tasks_per_node = counted(job.ntasks_per_node),
    component = given(job.het_job_offset),
    time_limit_minutes = minutes and minutes < 16777216 and minutes or nil,
  })
  if not answer then
    unchecked(why)
    return slurm.SUCCESS
  end
  if IN_FILES[answer.why] and string.find(job.comment or "", "est_%x") then
    return slurm.SUCCESS
  end
  if answer.id ~= "" or answer.why ~= "" then
    job.comment = commented(job.comment, answer)
    job.admin_comment = commented(job.admin_comment, answer) -- is kept by slurmdbd whatever AccountingStoreFlags says
  end
  return show(answer, slurm.log_user)
end

function slurm_job_submit(job, partitions, user)
  local done, code = pcall(judge, job)
  if not done then
    unchecked(tostring(code))
  end
  return done and code or slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
  return slurm.SUCCESS
end

return slurm.SUCCESS
